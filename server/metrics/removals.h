// What retention has removed of ended jobs, and when it last looked at all of them.
#ifndef SERVER_METRICS_REMOVALS_H_
#define SERVER_METRICS_REMOVALS_H_

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

namespace snug::server {

struct Removals {
  explicit Removals(prometheus::Registry& registry);

  std::map<std::string, prometheus::Counter*> removed;  // By what: job, ..., file.
  prometheus::Counter& bytes;
  prometheus::Gauge& held;
  prometheus::Gauge& swept;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_REMOVALS_H_

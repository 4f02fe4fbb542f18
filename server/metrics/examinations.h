// What examinations of the store have found, and when the last one ended.
#ifndef SERVER_METRICS_EXAMINATIONS_H_
#define SERVER_METRICS_EXAMINATIONS_H_

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

namespace snug::server {

struct Examinations {
  explicit Examinations(prometheus::Registry& registry);

  prometheus::Family<prometheus::Gauge>& findings;  // By check.
  prometheus::Gauge& examined;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_EXAMINATIONS_H_

// The gauges of one thing that comes and goes: a job with an attempt. They go when it does.
#ifndef SERVER_METRICS_SERIES_H_
#define SERVER_METRICS_SERIES_H_

#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <utility>

namespace snug::server {

using Labels = std::map<std::string, std::string>;
using GaugeFamily = prometheus::Family<prometheus::Gauge>;

GaugeFamily& Gauges(prometheus::Registry& registry, const char* name, const char* help);

class Series {
 public:
  explicit Series(Labels labels) : labels_(std::move(labels)) {}
  ~Series();
  Series(const Series&) = delete;
  Series& operator=(const Series&) = delete;

  // A value that is not finite is not shown: the one before stays.
  void Set(GaugeFamily& family, double value, const Labels& more = {});
  // The family has these values and no others: those of earlier labels go.
  void Replace(GaugeFamily& family, const std::map<Labels, double>& values);

 private:
  const Labels labels_;  // Of every gauge here.
  std::map<std::pair<GaugeFamily*, Labels>, prometheus::Gauge*> gauges_;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_SERIES_H_

#include "server/metrics/series.h"

#include <cmath>

namespace snug::server {

GaugeFamily& Gauges(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

Series::~Series() {
  for (const auto& [key, gauge] : gauges_) key.first->Remove(gauge);
}

void Series::Set(GaugeFamily& family, double value, const Labels& more) {
  auto found = gauges_.find({&family, more});
  if (found == gauges_.end()) {
    Labels all = labels_;
    all.insert(more.begin(), more.end());
    found = gauges_.emplace(std::make_pair(&family, more), &family.Add(all)).first;
  }
  if (std::isfinite(value)) found->second->Set(value);
}

void Series::Replace(GaugeFamily& family, const std::map<Labels, double>& values) {
  for (auto it = gauges_.begin(); it != gauges_.end();) {
    const bool stale = it->first.first == &family && values.count(it->first.second) == 0;
    if (stale) family.Remove(it->second);
    it = stale ? gauges_.erase(it) : std::next(it);
  }
  for (const auto& [labels, value] : values) Set(family, value, labels);
}

}  // namespace snug::server

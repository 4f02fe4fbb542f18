#include "server/scheduler/recent_median.h"

#include <algorithm>
#include <vector>

namespace snug::server {

void RecentMedian::Add(double value) {
  values_.push_back(value);
  if (values_.size() > kMaxValues) values_.pop_front();
}

double RecentMedian::Get() const {
  if (values_.empty()) return 0.0;
  std::vector<double> sorted(values_.begin(), values_.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

}  // namespace snug::server

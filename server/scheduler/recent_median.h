// The median of the last values of a series: a few that are far off do not move it.
#ifndef SERVER_SCHEDULER_RECENT_MEDIAN_H_
#define SERVER_SCHEDULER_RECENT_MEDIAN_H_

#include <cstddef>
#include <deque>

namespace snug::server {

class RecentMedian {
 public:
  void Add(double value);
  bool empty() const { return values_.empty(); }
  // Of an even number the lower one of the middle: what disturbs a step makes it longer. 0: empty.
  double Get() const;

 private:
  static constexpr size_t kMaxValues = 32;

  std::deque<double> values_;
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_RECENT_MEDIAN_H_

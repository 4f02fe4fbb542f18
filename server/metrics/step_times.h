// Optimizer steps by device: how long they take, how well that was predicted, and jobs that have
// left because they slowed another one's.
#ifndef SERVER_METRICS_STEP_TIMES_H_
#define SERVER_METRICS_STEP_TIMES_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <string>

namespace snug::server {

class StepTimes {
 public:
  explicit StepTimes(prometheus::Registry& registry);

  // Each is made when it is first asked for.
  prometheus::Histogram& SecondsOn(const std::string& device);
  prometheus::Histogram& RatiosOn(const std::string& device);
  prometheus::Counter& DisplacedFrom(const std::string& device);

 private:
  prometheus::Family<prometheus::Histogram>& seconds_;
  prometheus::Family<prometheus::Histogram>& ratios_;
  prometheus::Family<prometheus::Counter>& displaced_;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_STEP_TIMES_H_

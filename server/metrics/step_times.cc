#include "server/metrics/step_times.h"

#include "server/metrics/metrics.h"

namespace snug::server {
namespace {

using Boundaries = prometheus::Histogram::BucketBoundaries;

// A step: of a tiny model on a CPU, to one of many micro-batches that reads its base from the host.
const Boundaries kStepSeconds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0};
// Times are predicted for the largest batch on an idle device: smaller batches lead below 1,
// neighbours above it.
const Boundaries kStepRatios = {0.25, 0.5,  0.75, 0.9, 0.95, 1.0, 1.05,
                                1.1,  1.25, 1.5,  2.0, 4.0,  10.0};

}  // namespace

StepTimes::StepTimes(prometheus::Registry& registry)
    : seconds_(prometheus::BuildHistogram()
                   .Name("snug_step_seconds")
                   .Help("Time of an optimizer step, by device.")
                   .Register(registry)),
      ratios_(prometheus::BuildHistogram()
                  .Name("snug_step_measured_to_predicted_ratio")
                  .Help("Measured by predicted time of a step, of attempts that have ended.")
                  .Register(registry)),
      displaced_(prometheus::BuildCounter()
                     .Name("snug_jobs_displaced_total")
                     .Help("Jobs put back into the queue because they slowed another one.")
                     .Register(registry)) {}

prometheus::Histogram& StepTimes::SecondsOn(const std::string& device) {
  return seconds_.Add({{"device", SanitizeLabel(device)}}, kStepSeconds);
}

prometheus::Histogram& StepTimes::RatiosOn(const std::string& device) {
  return ratios_.Add({{"device", SanitizeLabel(device)}}, kStepRatios);
}

prometheus::Counter& StepTimes::DisplacedFrom(const std::string& device) {
  return displaced_.Add({{"device", SanitizeLabel(device)}});
}

}  // namespace snug::server

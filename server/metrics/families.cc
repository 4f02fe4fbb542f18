#include "server/metrics/families.h"

#include "proto/snug/enum_words.h"
#include "proto/snug/version.h"

namespace snug::server {
namespace {

using Boundaries = prometheus::Histogram::BucketBoundaries;

const Boundaries kWaitSeconds = {0.1, 1, 10, 60, 300, 1800, 7200, 21600, 86400, 604800};
// 50 ms is the most that a round may take with 10,000 jobs in the queue.
const Boundaries kRoundSeconds = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0};
// Predictions are held to [0.97, 1]; what is above 1 broke a promise.
const Boundaries kRatios = {0.5, 0.8, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995, 1.0, 1.01, 1.05, 1.25};

}  // namespace

Metrics::Families::CounterFamily& Metrics::Families::Counters(Registry& registry, const char* name,
                                                              const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Metrics::Families::HistogramFamily& Metrics::Families::Histograms(Registry& registry,
                                                                  const char* name,
                                                                  const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

// Every series that is known beforehand exists from the start, at 0: rate() needs that.
Metrics::Families::Families()
    : queue_wait(Histograms(*registry, "snug_queue_wait_seconds",
                            "From getting into the queue to the start of an attempt.")
                     .Add({}, kWaitSeconds)),
      round_seconds(
          Histograms(*registry, "snug_scheduler_round_seconds", "Time of deciding who runs next.")
              .Add({}, kRoundSeconds)),
      prediction_ratio(Histograms(*registry, "snug_memory_measured_to_predicted_ratio",
                                  "Measured by predicted peak of attempts that have ended.")
                           .Add({}, kRatios)) {
  build.Add({{"version", SanitizeLabel(kVersion)}}).Set(1);
  for (int state = v1::Job::STATE_PREPARING; state <= v1::Job::STATE_CANCELLED; ++state) {
    const std::string name = EnumWord(static_cast<v1::Job::State>(state));
    by_state[state] = &jobs.Add({{"state", name}});
  }
  for (const char* outcome :
       {"succeeded", "failed", "lost", "cancelled", "paused", "moved", "out_of_memory"})
    by_outcome[outcome] = &attempts.Add({{"outcome", outcome}});
  for (const char* reason : {kNoHello, kHung, kSilent, kBadMessages})
    by_reason[reason] = &ended_workers.Add({{"reason", reason}});
}

DeviceSeries& Metrics::Families::SeriesOf(const v1::Device& device) {
  const auto found = by_device.find(device.name());
  if (found != by_device.end()) return found->second;
  const Labels labels = {{"device", SanitizeLabel(device.name())}};
  device_model
      .Add({{"device", SanitizeLabel(device.name())},
            {"UUID", SanitizeLabel(device.uuid())},
            {"model_name", SanitizeLabel(device.model())}})
      .Set(1);
  step_times.SecondsOn(device.name());
  step_times.RatiosOn(device.name());
  step_times.DisplacedFrom(device.name());
  return by_device
      .emplace(device.name(), DeviceSeries{.total = &total.Add(labels),
                                           .capacity = &capacity.Add(labels),
                                           .reserved = &reserved.Add(labels),
                                           .shared = &shared.Add(labels),
                                           .predicted = &device_predicted.Add(labels),
                                           .peak = &device_peak.Add(labels),
                                           .drained = &drained.Add(labels)})
      .first->second;
}

// Without a job in the queue there is no such moment, and no series.
void Metrics::Families::ShowOldest() {
  if (by_age.empty()) {
    if (oldest_queued != nullptr) oldest.Remove(oldest_queued);
    oldest_queued = nullptr;
    return;
  }
  if (oldest_queued == nullptr) oldest_queued = &oldest.Add({});
  oldest_queued->Set(absl::ToDoubleSeconds(by_age.begin()->first - absl::UnixEpoch()));
}

}  // namespace snug::server

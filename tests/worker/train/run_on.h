// A whole attempt in this process, as often as a test likes: what an earlier one had taken of the
// device's memory counts no more.
#ifndef TESTS_WORKER_TRAIN_RUN_ON_H_
#define TESTS_WORKER_TRAIN_RUN_ON_H_

#include <atomic>
#include <cstdint>

#include "worker/execute/device.h"
#include "worker/train/run_attempt.h"

namespace snug::train {

inline AttemptResult RunOn(execute::Device& device, const AttemptOptions& attempt) {
  const std::atomic<bool> nobody_stops_it = false;
  const auto link = link::WorkerLink::Dial(attempt);
  device.allocator().ResetPeak();
  device.allocator().SetCap(INT64_MAX);
  return RunAttempt(attempt, device, *link, nobody_stops_it);
}

}  // namespace snug::train

#endif  // TESTS_WORKER_TRAIN_RUN_ON_H_

// One attempt from its assignment to its result: resumes, trains, evaluates, saves, exports,
// verifies, and tells the node. The trainer knows none of this; everything here is about files and
// the link.
#ifndef WORKER_TRAIN_RUN_ATTEMPT_H_
#define WORKER_TRAIN_RUN_ATTEMPT_H_

#include <atomic>

#include "worker/execute/device.h"
#include "worker/link/worker_link.h"
#include "worker/train/attempt.h"

namespace snug::train {

// Never fails itself: what went wrong is in the result. SIGTERM (`stop_requested` turns true) is a
// request to save and stop.
AttemptResult RunAttempt(const AttemptOptions& attempt, execute::Device& device,
                         link::WorkerLink& link, const std::atomic<bool>& stop_requested);

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_ATTEMPT_H_

// Whether a checkpoint belongs to the attempt that is to go on from it. Reads no file.
#ifndef WORKER_TRAIN_RESUMABLE_H_
#define WORKER_TRAIN_RESUMABLE_H_

#include <string>

#include "absl/status/status.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/train/attempt.h"

namespace snug::train {

// FAILED_PRECONDITION unless it is of this job, or the one of its parent that it begins with, with
// the seed and the data it was made with.
absl::Status CheckResumable(const checkpoint::RunState& state, const AttemptOptions& attempt,
                            const std::string& dataset_sha256);

}  // namespace snug::train

#endif  // WORKER_TRAIN_RESUMABLE_H_

// Sizes that a job leaves to the daemon (`auto`): the largest that fit its budget at its other
// settings. They are part of the job from then on, wherever it runs and however often.
#ifndef SERVER_SCHEDULER_AUTO_SIZES_H_
#define SERVER_SCHEDULER_AUTO_SIZES_H_

#include <vector>

#include "absl/status/status.h"
#include "server/job/check_job.h"
#include "server/place/devices.h"
#include "server/plan/planner.h"

namespace snug::server {

// training.max_seq_length, by prediction for rows that are not known yet, and of one row a batch
// where that is left to the daemon as well. On the device that takes the longest; the shortest
// there can be where none fits, so that what is refused says why.
absl::Status FillAutoLength(const std::vector<Device>& devices, CheckedJob& job);

// training.per_device_train_batch_size, at most the dataset's rows where they are known; likewise.
absl::Status FillAutoBatch(const std::vector<Device>& devices, const RowLengths& lengths,
                           CheckedJob& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_AUTO_SIZES_H_

#include "server/scheduler/auto_sizes.h"

#include <algorithm>
#include <cstdint>

#include "proto/snug/status_macros.h"
#include "server/job/check_spec.h"
#include "server/plan/largest.h"
#include "server/scheduler/auto_memory.h"

namespace snug::server {
namespace {

LargestLimits LimitsOn(const Device& device, const v1::JobSpec& spec) {
  return {.rows = kMaxBatchRows,
          .tokens = kMaxSequenceTokens,
          .memory = {.device_bytes = std::min(BudgetBytes(spec), device.capacity_bytes)}};
}

}  // namespace

absl::Status FillAutoLength(const std::vector<Device>& devices, CheckedJob& job) {
  v1::TrainingSpec& training = *job.spec.mutable_training();
  if (training.max_seq_length() != kAuto) return absl::OkStatus();
  RETURN_IF_ERROR(FillMemoryForSizes(devices, RowLengths(), job));
  v1::JobSpec spec = job.spec;
  if (training.per_device_train_batch_size() == kAuto)
    spec.mutable_training()->set_per_device_train_batch_size(1);
  int64_t longest = ShortestSequence(spec);
  for (const Device& device : devices) {
    ASSIGN_OR_RETURN(const int64_t length, LargestLength(*job.program, spec, MachineOf(device),
                                                         LimitsOn(device, job.spec)));
    longest = std::max(longest, length);
  }
  training.set_max_seq_length(static_cast<int32_t>(longest));
  return absl::OkStatus();
}

absl::Status FillAutoBatch(const std::vector<Device>& devices, const RowLengths& lengths,
                           CheckedJob& job) {
  v1::TrainingSpec& training = *job.spec.mutable_training();
  if (training.per_device_train_batch_size() != kAuto) return absl::OkStatus();
  RETURN_IF_ERROR(FillMemoryForSizes(devices, lengths, job));
  int64_t most = 1;
  for (const Device& device : devices) {
    ASSIGN_OR_RETURN(const int64_t rows,
                     LargestBatch(*job.program, job.spec, lengths, MachineOf(device),
                                  LimitsOn(device, job.spec)));
    most = std::max(most, rows);
  }
  training.set_per_device_train_batch_size(static_cast<int32_t>(most));
  return absl::OkStatus();
}

}  // namespace snug::server

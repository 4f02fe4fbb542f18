// Answers about a job that change nothing: is it right, which plans has it, can it ever run here.
// Reads model files and datasets, so it belongs on a pool.
#ifndef SERVER_SCHEDULER_ADVICE_H_
#define SERVER_SCHEDULER_ADVICE_H_

#include <atomic>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/prepare.h"
#include "server/job/check_job.h"
#include "server/job/job_index.h"
#include "server/place/devices.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

inline constexpr int kMaxPreviews = 2;
inline constexpr int kDefaultPreviewRows = 5;
inline constexpr int kMaxPreviewRows =
    100;  // More is no preview; with 64 KiB of text at most each.

class Advisor {
 public:
  Advisor(const JobIndex& index, Preparer& preparer, std::vector<Device> devices)
      : index_(index), preparer_(preparer), devices_(std::move(devices)) {}

  absl::StatusOr<CheckedJob> Check(const v1::JobSpec& spec);

  // Check, and PLAN_INFEASIBLE for a job that no device can hold: by its prepared dataset, or,
  // where there is none yet, because not even one token at a time would fit.
  absl::StatusOr<CheckedJob> CheckForCreate(const v1::JobSpec& spec);

  absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request);

  // Takes seconds. RESOURCE_EXHAUSTED while kMaxPreviews run: each is a process that reads a
  // model's tokenizer, and holds a thread of the pool.
  absl::StatusOr<v1::PreviewDatasetResponse> Preview(const v1::PreviewDatasetRequest& request);

 private:
  const JobIndex& index_;
  Preparer& preparer_;
  const std::vector<Device> devices_;
  std::atomic<int> previews_{0};
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ADVICE_H_

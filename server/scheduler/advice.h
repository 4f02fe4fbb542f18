// Answers about a job that change nothing: is it right, which plans has it, can it ever run here.
// Reads model files and datasets, so it belongs on a pool.
#ifndef SERVER_SCHEDULER_ADVICE_H_
#define SERVER_SCHEDULER_ADVICE_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/artifact/job_origins.h"
#include "server/data/prepare.h"
#include "server/inspect/inspector.h"
#include "server/job/check_job.h"
#include "server/job/job_index.h"
#include "server/place/devices.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// A dataset that is new is read to know it, at 1.7 GB/s at best: no longer than this for an answer.
inline constexpr absl::Duration kValidateFor = absl::Seconds(2);
inline constexpr absl::Duration kPlanFor = absl::Seconds(20);
inline constexpr int kMaxPreviews = 2;
inline constexpr int kDefaultPreviewRows = 5;
inline constexpr int kMaxPreviewRows =
    100;  // More is no preview; with 64 KiB of text at most each.

// PLAN_INFEASIBLE for a job that no device can hold, even if all were idle; of lengths that are not
// known, because not even one token at a time would fit.
absl::Status CheckFits(const std::vector<Device>& devices, const CheckedJob& job,
                       RowLengths lengths);

class Advisor {
 public:
  struct Settings {
    std::string state_dir;
    std::vector<Device> devices;
    std::vector<std::string> webhooks = {};  // Hosts that jobs may have called.
  };
  Advisor(const JobIndex& index, Preparer& preparer, Inspector& inspector, Settings settings)
      : index_(index),
        preparer_(preparer),
        inspector_(inspector),
        state_dir_(std::move(settings.state_dir)),
        devices_(std::move(settings.devices)),
        webhooks_(std::move(settings.webhooks)) {}

  // Writes the whole ids of the jobs that it begins with into the spec.
  absl::Status NameOrigins(const Principal& who, v1::JobSpec& spec) const;

  // `who` asks: his rights open the files, and only his jobs' models are there.
  absl::StatusOr<CheckedJob> Check(const v1::JobSpec& spec, const Principal& who);

  // What a submit waits for: nothing is read. Cheap, but for the file system's own delays.
  absl::Status CheckForm(const v1::JobSpec& spec, const Principal& who, InputFiles inputs);

  // Check, and CheckFits by the dataset where it is prepared and known within kValidateFor. Of one
  // that is not, the first row is read as it would be prepared.
  absl::StatusOr<CheckedJob> Validate(const v1::JobSpec& spec, const Principal& who);

  absl::StatusOr<v1::PlanJobResponse> Plan(const v1::PlanJobRequest& request, const Principal& who);

  // What reads a dataset or waits for another process ends, and says CANCELLED.
  void Stop() { stopped_ = true; }

  // Takes seconds. RESOURCE_EXHAUSTED while kMaxPreviews run: each is a process that reads a
  // model's tokenizer, and holds a thread of the pool; or while datasets that are being prepared
  // leave it no memory.
  absl::StatusOr<v1::PreviewDatasetResponse> Preview(const v1::PreviewDatasetRequest& request,
                                                     const Principal& who);

 private:
  JobOrigins OriginsFor(const Principal& who) const;
  absl::Status CheckFirstRow(const CheckedJob& job, const Principal& who);
  absl::StatusOr<v1::PreviewDatasetResponse> LookAt(const v1::JobSpec& spec,
                                                    const Preparer::Look& look,
                                                    const Principal& who);
  Preparer::Progress WithinTime(absl::Duration time, const Principal& who) const;

  const JobIndex& index_;
  Preparer& preparer_;
  Inspector& inspector_;
  const std::string state_dir_;
  const std::vector<Device> devices_;
  const std::vector<std::string> webhooks_;
  std::atomic<int> previews_{0};
  std::atomic<bool> stopped_{false};
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_ADVICE_H_

#include "server/scheduler/advice.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/webhook_url.h"
#include "server/plan/planner.h"
#include "server/scheduler/auto_memory.h"
#include "server/scheduler/auto_sizes.h"
#include "server/scheduler/outlook.h"

namespace snug::server {

absl::Status CheckFits(const std::vector<Device>& devices, const CheckedJob& job,
                       RowLengths lengths) {
  if (job.spec.training().per_device_train_batch_size() == kAuto) {  // One row is left to try.
    CheckedJob one = job;
    one.spec.mutable_training()->set_per_device_train_batch_size(1);
    return CheckFits(devices, one, lengths);
  }
  if (!lengths.prepared()) {
    lengths.train = lengths.eval = lengths.train_sources = lengths.eval_sources = {1};
    lengths.longest_prompt = 1;
  }
  if (LeavesMemoryOpen(devices, job)) {
    CheckedJob chosen = job;
    RETURN_IF_ERROR(FillAutoMemory(devices, lengths, chosen));
    return CheckFits(devices, chosen, lengths);
  }
  ASSIGN_OR_RETURN(const Outlook outlook, Foresee(devices, job, lengths, PlansWanted::kForPlacing));
  const Device& device = *outlook.device;
  const std::vector<v1::Plan>& plans = outlook.plans->at(device.name);
  if (ChosenOn(device, job.spec, plans) >= 0) return absl::OkStatus();
  const std::string refusal =
      RefusalOf(plans, device.name, device.capacity_bytes, BudgetBytes(job.spec));
  return PlanInfeasible(absl::StrCat(refusal, FidelityThatFits(device, job, lengths)),
                        plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes());
}

Preparer::Progress Advisor::WithinTime(absl::Duration time, const Principal& who) const {
  return {.cancelled = &stopped_,
          .read_until = absl::Now() + time,
          .reach = inspector_.access().ReachOf(who)};
}

JobOrigins Advisor::OriginsFor(const Principal& who) const { return {index_, state_dir_, who}; }

absl::Status Advisor::NameOrigins(const Principal& who, v1::JobSpec& spec) const {
  return server::NameOrigins(OriginsFor(who), spec);
}

absl::StatusOr<CheckedJob> Advisor::Check(const v1::JobSpec& spec, const Principal& who) {
  return inspector_.Check(spec, OriginsFor(who), {.who = who, .cancelled = &stopped_});
}

absl::Status Advisor::CheckForm(const v1::JobSpec& spec, const Principal& who, InputFiles inputs) {
  std::vector<Violation> found = inspector_.access().Check(spec, who, inputs);
  for (Violation& violation : CheckWebhook(spec.webhook(), webhooks_))
    found.push_back(std::move(violation));
  if (!found.empty()) return InvalidRequest(found);
  return server::CheckForm(spec, OriginsFor(who), inputs, inspector_.access().ReachOf(who));
}

absl::StatusOr<CheckedJob> Advisor::Validate(const v1::JobSpec& spec, const Principal& who) {
  if (const std::vector<Violation> found = CheckWebhook(spec.webhook(), webhooks_); !found.empty())
    return InvalidRequest(found);
  ASSIGN_OR_RETURN(CheckedJob job, Check(spec, who));
  RETURN_IF_ERROR(FillAutoLength(devices_, job));
  v1::DatasetSummary summary;
  ASSIGN_OR_RETURN(const RowLengths lengths,
                   KnownLengths(preparer_, job, WithinTime(kValidateFor, who), &summary));
  if (!lengths.prepared()) RETURN_IF_ERROR(CheckFirstRow(job, who));
  RETURN_IF_ERROR(FillAutoBatch(devices_, lengths, job));
  RETURN_IF_ERROR(FillAutoMemory(devices_, lengths, job));
  RETURN_IF_ERROR(CheckFits(devices_, job, lengths));
  return job;
}

// That a row could not be read now is no reason to refuse the job: it is prepared later.
absl::Status Advisor::CheckFirstRow(const CheckedJob& job, const Principal& who) {
  const Preparer::Look look = {
      .model_dir = job.model_dir, .rows = 1, .scanned_rows = 1, .wait = kValidateFor};
  const absl::Status status = LookAt(job.spec, look, who).status();
  return absl::IsInvalidArgument(status) ? status : absl::OkStatus();
}

absl::StatusOr<v1::PreviewDatasetResponse> Advisor::LookAt(const v1::JobSpec& spec,
                                                           const Preparer::Look& look,
                                                           const Principal& who) {
  const absl::Cleanup end = [this] { --previews_; };
  if (++previews_ > kMaxPreviews) return QueueFull("previews", kMaxPreviews);
  return preparer_.Preview(spec, look,
                           {.cancelled = &stopped_, .reach = inspector_.access().ReachOf(who)});
}

absl::StatusOr<v1::PreviewDatasetResponse> Advisor::Preview(
    const v1::PreviewDatasetRequest& request, const Principal& who) {
  if (request.rows() < 0 || request.rows() > kMaxPreviewRows)
    return InvalidRequest(
        {{"rows", absl::StrCat(request.rows(), " is outside 0 to ", kMaxPreviewRows),
          "BAD_FIELD"}});
  const std::vector<Violation> found = inspector_.access().Check(request.spec(), who);
  if (!found.empty()) return InvalidRequest(found);
  ASSIGN_OR_RETURN(const std::string model_dir,
                   CheckDataset(request.spec(), OriginsFor(who), inspector_.access().ReachOf(who)));
  v1::JobSpec spec = request.spec();
  if (spec.training().max_seq_length() == kAuto) spec.mutable_training()->clear_max_seq_length();
  return LookAt(spec,
                {.model_dir = model_dir,
                 .rows = request.rows() == 0 ? kDefaultPreviewRows : request.rows(),
                 .scanned_rows = std::max(request.scan_rows(), 0)},
                who);
}

}  // namespace snug::server

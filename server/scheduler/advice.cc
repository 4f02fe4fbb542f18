#include "server/scheduler/advice.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/data/prepared_dataset.h"
#include "server/job/errors.h"
#include "server/plan/planner.h"

namespace snug::server {
namespace {

// Of the prepared dataset, if it is there; and what was found in it, into `summary`.
absl::StatusOr<RowLengths> KnownLengths(Preparer& preparer, const CheckedJob& job,
                                        v1::DatasetSummary* summary) {
  ASSIGN_OR_RETURN(const PreparedFolders folders, preparer.Locate(job.spec, job.model_dir));
  if (!folders.ready) return RowLengths();
  ASSIGN_OR_RETURN(*summary, ReadSummary(folders.train));
  return LengthsOf(folders);
}

// The device on which a job that had it alone would be fastest, and where none holds it the
// largest.
struct BestDevice {
  const Device* device = nullptr;
  std::vector<v1::Plan> plans;
  int chosen = -1;
};

absl::StatusOr<BestDevice> Best(const std::vector<Device>& devices, const CheckedJob& job,
                                const RowLengths& lengths, int64_t context_bytes) {
  BestDevice best;
  for (const Device& device : devices) {
    ASSIGN_OR_RETURN(std::vector<v1::Plan> plans,
                     PlansFor(job.program, job.spec, lengths,
                              {.threads = device.threads, .context_bytes = context_bytes}));
    const int chosen = FirstThatFits(plans, std::min(device.capacity_bytes, BudgetBytes(job.spec)));
    const bool faster = chosen >= 0 && (best.chosen < 0 || chosen < best.chosen);
    const bool larger =
        chosen < 0 && best.chosen < 0 &&
        (best.device == nullptr || device.capacity_bytes > best.device->capacity_bytes);
    if (faster || larger) best = {&device, std::move(plans), chosen};
  }
  return best;
}

}  // namespace

absl::StatusOr<CheckedJob> Advisor::Check(const v1::JobSpec& spec) {
  return CheckJob(spec, [this](const std::string& id) { return index_.FinishedModel(id); });
}

absl::StatusOr<CheckedJob> Advisor::CheckForCreate(const v1::JobSpec& spec) {
  ASSIGN_OR_RETURN(CheckedJob job, Check(spec));
  v1::DatasetSummary summary;
  ASSIGN_OR_RETURN(RowLengths lengths, KnownLengths(preparer_, job, &summary));
  if (!lengths.prepared()) {
    lengths.train = lengths.eval = {1};
    lengths.longest_prompt = 1;
  }
  ASSIGN_OR_RETURN(const BestDevice best, Best(devices_, job, lengths, context_bytes_));
  if (best.chosen >= 0) return job;
  return PlanInfeasible(
      RefusalOf(best.plans, best.device->name, best.device->capacity_bytes, BudgetBytes(spec)),
      best.plans[static_cast<size_t>(SmallestOf(best.plans))].peak_bytes());
}

absl::StatusOr<v1::PlanJobResponse> Advisor::Plan(const v1::PlanJobRequest& request) {
  ASSIGN_OR_RETURN(const CheckedJob job, Check(request.spec()));
  v1::PlanJobResponse response;
  ASSIGN_OR_RETURN(const RowLengths lengths,
                   KnownLengths(preparer_, job, response.mutable_dataset()));
  if (!lengths.prepared()) response.clear_dataset();
  ASSIGN_OR_RETURN(const BestDevice best, Best(devices_, job, lengths, context_bytes_));
  const int64_t budget = BudgetBytes(job.spec), capacity = best.device->capacity_bytes;
  response.set_length_source(lengths.prepared() ? "prepared dataset" : "max_seq_length");
  response.set_device(best.device->name);
  response.set_device_capacity_bytes(capacity);
  response.set_budget_bytes(std::min(budget, capacity));
  response.set_chosen(best.chosen);
  if (best.chosen < 0)
    response.set_refusal(RefusalOf(best.plans, best.device->name, capacity, budget));
  if (request.with_sites())
    for (v1::Site& site : SitesOf(job.program, best.plans.front().key().tokens()))
      *response.add_sites() = std::move(site);
  for (const v1::Plan& plan : best.plans) *response.add_plans() = plan;
  return response;
}

absl::StatusOr<v1::PreviewDatasetResponse> Advisor::Preview(
    const v1::PreviewDatasetRequest& request) {
  if (request.rows() < 0 || request.rows() > kMaxPreviewRows)
    return InvalidRequest(
        {{"rows", absl::StrCat(request.rows(), " is outside 0 to ", kMaxPreviewRows),
          "BAD_FIELD"}});
  ASSIGN_OR_RETURN(const std::string model_dir,
                   CheckDataset(request.spec(), [this](const std::string& id) {
                     return index_.FinishedModel(id);
                   }));
  const absl::Cleanup end = [this] { --previews_; };
  if (++previews_ > kMaxPreviews) return QueueFull("previews", kMaxPreviews);
  const int rows = request.rows() == 0 ? kDefaultPreviewRows : request.rows();
  return preparer_.Preview(request.spec(), model_dir, rows);
}

}  // namespace snug::server

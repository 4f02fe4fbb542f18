#include "server/scheduler/advice.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/data/prepared_dataset.h"
#include "server/job/errors.h"
#include "server/place/policy.h"
#include "server/plan/planner.h"
#include "server/scheduler/device_plans.h"

namespace snug::server {
namespace {

// Of the prepared dataset, if it is there and is found in time; and what was found in it, into
// `summary`.
absl::StatusOr<RowLengths> KnownLengths(Preparer& preparer, const CheckedJob& job,
                                        const Preparer::Progress& progress,
                                        v1::DatasetSummary* summary) {
  const absl::StatusOr<PreparedFolders> folders =
      preparer.Locate(job.spec, job.model_dir, progress);
  if (absl::IsDeadlineExceeded(folders.status())) return RowLengths();
  RETURN_IF_ERROR(folders.status());
  if (!folders->ready) return RowLengths();
  ASSIGN_OR_RETURN(*summary, ReadSummary(folders->train));
  return LengthsOf(*folders);
}

// A job's plans on every device, and what it would be given if all of them were idle.
struct Outlook {
  DevicePlans plans;
  const Device* device = nullptr;  // Its device; where none holds it, the largest.
};

const Device& Named(const std::vector<Device>& devices, const std::string& name) {
  return *std::find_if(devices.begin(), devices.end(),
                       [&](const Device& device) { return device.name == name; });
}

// Empty: it names none.
absl::Status CheckNamed(const std::vector<Device>& devices, const std::string& name) {
  std::vector<std::string> names;
  for (const Device& device : devices) names.push_back(device.name);
  if (name.empty() || std::count(names.begin(), names.end(), name) > 0) return absl::OkStatus();
  return InvalidRequest({{"device",
                          absl::StrCat(name, " is none of this daemon's devices, which are ",
                                       absl::StrJoin(names, ", ")),
                          "BAD_FIELD"}});
}

int ChosenOn(const Device& device, const v1::JobSpec& spec, const std::vector<v1::Plan>& plans) {
  return FirstThatFits(plans, std::min(device.capacity_bytes, BudgetBytes(spec)));
}

// By the policy itself, so that what is foretold is what happens.
absl::StatusOr<Outlook> Foresee(const std::vector<Device>& devices, const CheckedJob& job,
                                const RowLengths& lengths) {
  Outlook outlook;
  ASSIGN_OR_RETURN(outlook.plans, PlansOn(devices, job, lengths));
  QueuedJob queued{.budget_bytes = BudgetBytes(job.spec)};
  for (const auto& [device, plans] : outlook.plans)
    for (const v1::Plan& plan : plans) queued.plan_bytes[device].push_back(plan.peak_bytes());
  const std::vector<DeviceState> idle = StatesOf(devices);
  const Decision decision = Decide({queued}, idle, /*now_us=*/0);
  outlook.device =
      &Named(devices, decision.placements.empty() ? LargestOf(idle).name
                                                  : decision.placements.front().device);
  return outlook;
}

v1::DeviceChoice ChoiceOn(const Device& device, const v1::JobSpec& spec,
                          const std::vector<v1::Plan>& plans) {
  const int chosen = ChosenOn(device, spec, plans);
  const v1::Plan& plan = plans[static_cast<size_t>(chosen >= 0 ? chosen : SmallestOf(plans))];
  v1::DeviceChoice choice;
  choice.set_device(device.name);
  choice.set_capacity_bytes(device.capacity_bytes);
  choice.set_fits(chosen >= 0);
  choice.set_plan(plan.name());
  choice.set_peak_bytes(plan.peak_bytes());
  return choice;
}

}  // namespace

absl::Status CheckFits(const std::vector<Device>& devices, const CheckedJob& job,
                       RowLengths lengths) {
  if (!lengths.prepared()) {
    lengths.train = lengths.eval = {1};
    lengths.longest_prompt = 1;
  }
  ASSIGN_OR_RETURN(const Outlook outlook, Foresee(devices, job, lengths));
  const Device& device = *outlook.device;
  const std::vector<v1::Plan>& plans = outlook.plans.at(device.name);
  if (ChosenOn(device, job.spec, plans) >= 0) return absl::OkStatus();
  return PlanInfeasible(RefusalOf(plans, device.name, device.capacity_bytes, BudgetBytes(job.spec)),
                        plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes());
}

Preparer::Progress Advisor::WithinTime(absl::Duration time) const {
  return {.cancelled = &stopped_, .read_until = absl::Now() + time};
}

FindModelOfJob Advisor::ModelsOf(const Principal& who) const {
  return [this, who](const std::string& id) { return index_.FinishedModel(id, who); };
}

absl::StatusOr<CheckedJob> Advisor::Check(const v1::JobSpec& spec, const Principal& who) {
  return inspector_.Check(spec, ModelsOf(who), {.who = who, .cancelled = &stopped_});
}

absl::Status Advisor::CheckForm(const v1::JobSpec& spec, const Principal& who) {
  const std::vector<Violation> found = inspector_.access().Check(spec, who);
  return found.empty() ? server::CheckForm(spec, ModelsOf(who)) : InvalidRequest(found);
}

absl::StatusOr<CheckedJob> Advisor::Validate(const v1::JobSpec& spec, const Principal& who) {
  ASSIGN_OR_RETURN(CheckedJob job, Check(spec, who));
  v1::DatasetSummary summary;
  ASSIGN_OR_RETURN(const RowLengths lengths,
                   KnownLengths(preparer_, job, WithinTime(kValidateFor), &summary));
  RETURN_IF_ERROR(CheckFits(devices_, job, lengths));
  return job;
}

absl::StatusOr<v1::PlanJobResponse> Advisor::Plan(const v1::PlanJobRequest& request,
                                                  const Principal& who) {
  RETURN_IF_ERROR(CheckNamed(devices_, request.device()));
  ASSIGN_OR_RETURN(const CheckedJob job, Check(request.spec(), who));
  v1::PlanJobResponse response;
  ASSIGN_OR_RETURN(const RowLengths lengths,
                   KnownLengths(preparer_, job, WithinTime(kPlanFor), response.mutable_dataset()));
  if (!lengths.prepared()) response.clear_dataset();
  ASSIGN_OR_RETURN(const Outlook outlook, Foresee(devices_, job, lengths));
  const Device& device =
      request.device().empty() ? *outlook.device : Named(devices_, request.device());
  const std::vector<v1::Plan>& plans = outlook.plans.at(device.name);
  const int64_t budget = BudgetBytes(job.spec), capacity = device.capacity_bytes;
  response.set_length_source(lengths.prepared() ? "prepared dataset" : "max_seq_length");
  response.set_device(device.name);
  response.set_device_capacity_bytes(capacity);
  response.set_budget_bytes(std::min(budget, capacity));
  response.set_chosen(ChosenOn(device, job.spec, plans));
  if (response.chosen() < 0) response.set_refusal(RefusalOf(plans, device.name, capacity, budget));
  if (request.with_sites())
    for (v1::Site& site : SitesOf(job.program, plans.front().key().tokens()))
      *response.add_sites() = std::move(site);
  for (const v1::Plan& plan : plans) *response.add_plans() = plan;
  for (const Device& each : devices_)
    *response.add_devices() = ChoiceOn(each, job.spec, outlook.plans.at(each.name));
  return response;
}

absl::StatusOr<v1::PreviewDatasetResponse> Advisor::Preview(
    const v1::PreviewDatasetRequest& request, const Principal& who) {
  if (request.rows() < 0 || request.rows() > kMaxPreviewRows)
    return InvalidRequest(
        {{"rows", absl::StrCat(request.rows(), " is outside 0 to ", kMaxPreviewRows),
          "BAD_FIELD"}});
  const std::vector<Violation> found = inspector_.access().Check(request.spec(), who);
  if (!found.empty()) return InvalidRequest(found);
  ASSIGN_OR_RETURN(const std::string model_dir, CheckDataset(request.spec(), ModelsOf(who)));
  const absl::Cleanup end = [this] { --previews_; };
  if (++previews_ > kMaxPreviews) return QueueFull("previews", kMaxPreviews);
  const int rows = request.rows() == 0 ? kDefaultPreviewRows : request.rows();
  return preparer_.Preview(request.spec(), model_dir, rows, std::max(request.scan_rows(), 0));
}

}  // namespace snug::server

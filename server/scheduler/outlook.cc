#include "server/scheduler/outlook.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/snug/enum_words.h"
#include "proto/snug/status_macros.h"
#include "server/place/policy.h"
#include "server/plan/planner.h"

namespace snug::server {

absl::StatusOr<RowLengths> KnownLengths(Preparer& preparer, const CheckedJob& job,
                                        const Preparer::Progress& progress,
                                        v1::DatasetSummary* summary) {
  const absl::StatusOr<PreparedFolders> folders =
      preparer.Locate(job.spec, job.model_dir, progress);
  if (absl::IsDeadlineExceeded(folders.status())) return RowLengths();
  RETURN_IF_ERROR(folders.status());
  if (!folders->ready) return RowLengths();
  ASSIGN_OR_RETURN(const auto facts, preparer.FactsOf(*folders));
  *summary = facts->summary;
  return facts->lengths;
}

const Device& DeviceNamed(const std::vector<Device>& devices, const std::string& name) {
  return *std::find_if(devices.begin(), devices.end(),
                       [&](const Device& device) { return device.name == name; });
}

int ChosenOn(const Device& device, const v1::JobSpec& spec, const std::vector<v1::Plan>& plans,
             int64_t host_limit_bytes) {
  return FirstThatFits(plans, std::min(device.capacity_bytes, BudgetBytes(spec)), host_limit_bytes);
}

std::string FidelityThatFits(const Device& device, const CheckedJob& job,
                             const RowLengths& lengths) {
  if (!PatternsOf(job.spec, job.program->config).empty()) return "";
  v1::JobSpec spec = job.spec;
  for (int more = std::max<int>(spec.memory().fidelity(), v1::FIDELITY_EXACT) + 1;
       more <= v1::FIDELITY_APPROXIMATE; ++more) {
    spec.mutable_memory()->set_fidelity(static_cast<v1::Fidelity>(more));
    const absl::StatusOr<bool> fits =
        AnyPlanFits(*job.program, spec, lengths, MachineOf(device),
                    {.device_bytes = std::min(device.capacity_bytes, BudgetBytes(spec))});
    if (fits.ok() && *fits)
      return absl::StrCat("; memory.fidelity: ", LowerEnumWord(spec.memory().fidelity()),
                          " would let it fit");
  }
  return "";
}

absl::StatusOr<Outlook> Foresee(const std::vector<Device>& devices, const CheckedJob& job,
                                const RowLengths& lengths, PlansWanted wanted) {
  Outlook outlook;
  ASSIGN_OR_RETURN(outlook.plans, PlansOn(devices, job, lengths, wanted));
  QueuedJob queued{.budget_bytes = BudgetBytes(job.spec)};
  for (const auto& [device, plans] : *outlook.plans)
    for (const v1::Plan& plan : plans)
      queued.plans[device].emplace_back(plan.peak_bytes(), plan.threads());
  const std::vector<DeviceState> idle = StatesOf(devices);
  const Decision decision = Decide({queued}, idle, /*now_us=*/0);
  outlook.device =
      &DeviceNamed(devices, decision.placements.empty() ? LargestOf(idle).name
                                                        : decision.placements.front().device);
  return outlook;
}

}  // namespace snug::server

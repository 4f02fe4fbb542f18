// The answer to `snug plan`: what each plan of a job needs, on the daemon's devices or on a machine
// that is described.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/place/device_kinds.h"
#include "server/plan/largest.h"
#include "server/plan/tape_view.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/auto_memory.h"
#include "server/scheduler/auto_sizes.h"
#include "server/scheduler/outlook.h"
#include "worker/program/tape_text.h"

namespace snug::server {
namespace {

// A picture has no more columns.
constexpr size_t kMostTimelinePoints = 600;
// What gRPC takes in one message, less the rest of the answer.
constexpr size_t kMostTapeBytes = 3 << 20;

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

// The daemon's, or the one that is described.
absl::StatusOr<std::vector<Device>> DevicesFor(const v1::PlanJobRequest& request,
                                               const std::vector<Device>& devices) {
  RETURN_IF_ERROR(CheckNamed(devices, request.device()));
  if (!request.has_machine()) return devices;
  const Device& like =
      request.device().empty() ? devices.front() : DeviceNamed(devices, request.device());
  absl::StatusOr<Device> given = GivenDevice(request.machine(), devices, like);
  if (!given.ok())
    return InvalidRequest({{"machine", std::string(given.status().message()), "BAD_FIELD"}});
  return std::vector<Device>{*std::move(given)};
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

int64_t HostLimit(const v1::PlanJobRequest& request) {
  const int64_t bytes = request.machine().host_memory_bytes();
  return bytes > 0 ? bytes : INT64_MAX;
}

// The chosen plan from inside; of a job that fits nowhere, the smallest.
absl::Status AddTape(const CheckedJob& job, const RowLengths& lengths, const Device& device,
                     const v1::PlanJobRequest& request, v1::PlanJobResponse& response) {
  if (!request.with_tape() && !request.with_timeline()) return absl::OkStatus();
  const std::vector<v1::Plan> plans(response.plans().begin(), response.plans().end());
  const int shown = response.chosen() >= 0 ? response.chosen() : SmallestOf(plans);
  ASSIGN_OR_RETURN(
      const program::Tape tape,
      TapeOf(*job.program, OptionsFor(*job.program, job.spec, lengths, MachineOf(device)),
             plans[static_cast<size_t>(shown)]));
  if (request.with_timeline()) {
    for (v1::LiveBytes& live : TimelineOf(tape, kMostTimelinePoints))
      *response.add_timeline() = std::move(live);
  }
  if (!request.with_tape()) return absl::OkStatus();
  response.set_tape(program::TapeText(tape));
  if (response.tape().size() <= kMostTapeBytes) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("the tape has ", response.tape().size(),
                                            " bytes of text, of which an answer holds ",
                                            kMostTapeBytes));
}

// How far single settings can be raised, at the job's own fidelity and at each.
absl::Status AddMax(const CheckedJob& job, const RowLengths& lengths, const Device& device,
                    const v1::PlanJobRequest& request, v1::PlanJobResponse& response) {
  if (!request.with_max()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<v1::LargestSettings> largest,
                   LargestThatFit(*job.program, job.spec, lengths, MachineOf(device),
                                  {.rows = kMaxBatchRows,
                                   .micro_batches = kMaxBatchRows,
                                   .tokens = kMaxSequenceTokens,
                                   .memory = {response.budget_bytes(), HostLimit(request)}}));
  for (const v1::LargestSettings& each : largest) {
    if (each.fidelity() == job.spec.memory().fidelity()) *response.mutable_max() = each;
    *response.add_max_by_fidelity() = each;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::PlanJobResponse> Advisor::Plan(const v1::PlanJobRequest& request,
                                                  const Principal& who) {
  ASSIGN_OR_RETURN(const std::vector<Device> devices, DevicesFor(request, devices_));
  ASSIGN_OR_RETURN(CheckedJob job, Check(request.spec(), who));
  v1::PlanJobResponse response;
  const bool named = !request.has_machine() && !request.device().empty();
  const std::vector<Device> asked =
      named ? std::vector<Device>{DeviceNamed(devices, request.device())} : devices;
  const bool memory_is_open = LeavesMemoryOpen(asked, job);
  RETURN_IF_ERROR(FillAutoLength(asked, job));
  ASSIGN_OR_RETURN(const RowLengths lengths, KnownLengths(preparer_, job, WithinTime(kPlanFor, who),
                                                          response.mutable_dataset()));
  if (!lengths.prepared()) response.clear_dataset();
  RETURN_IF_ERROR(FillAutoBatch(asked, lengths, job));
  RETURN_IF_ERROR(FillAutoMemory(asked, lengths, job));
  if (memory_is_open) {
    response.set_gradients(job.spec.memory().gradients());
    response.set_optimizer(job.spec.memory().optimizer());
  }
  ASSIGN_OR_RETURN(const Outlook outlook, Foresee(devices, job, lengths, PlansWanted::kAll));
  const Device& device = named ? DeviceNamed(devices, request.device()) : *outlook.device;
  const std::vector<v1::Plan>& plans = outlook.plans->at(device.name);
  const int64_t budget = BudgetBytes(job.spec), capacity = device.capacity_bytes;
  response.set_length_source(lengths.prepared() ? "prepared dataset" : "max_seq_length");
  response.set_device(device.name);
  response.set_device_capacity_bytes(capacity);
  response.set_budget_bytes(std::min(budget, capacity));
  response.set_rates(RatesSource(device));
  response.set_chosen(ChosenOn(device, job.spec, plans, HostLimit(request)));
  if (response.chosen() < 0)
    response.set_refusal(ChosenOn(device, job.spec, plans) >= 0
                             ? HostRefusalOf(plans, response.budget_bytes(), HostLimit(request))
                             : absl::StrCat(RefusalOf(plans, device.name, capacity, budget),
                                            FidelityThatFits(device, job, lengths)));
  if (request.with_sites())
    for (v1::Site& site : SitesOf(*job.program, plans.front().key().tokens()))
      *response.add_sites() = std::move(site);
  for (const v1::Plan& plan : plans) *response.add_plans() = plan;
  for (const Device& each : devices)
    *response.add_devices() = ChoiceOn(each, job.spec, outlook.plans->at(each.name));
  RETURN_IF_ERROR(AddMax(job, lengths, device, request, response));
  RETURN_IF_ERROR(AddTape(job, lengths, device, request, response));
  return response;
}

}  // namespace snug::server

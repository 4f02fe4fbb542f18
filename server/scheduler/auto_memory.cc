#include "server/scheduler/auto_memory.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "proto/snug/status_macros.h"
#include "server/job/check_spec.h"
#include "server/plan/largest.h"
#include "server/scheduler/device_plans.h"
#include "server/scheduler/outlook.h"
#include "worker/program/released_gradients.h"

namespace snug::server {
namespace {

// What is less than this much faster is not worth what it gives up: a step that can be made again
// when it did not fit, or the host's memory.
constexpr double kWorthIt = 0.99;

bool IsOpen(v1::MemorySpec::Gradients gradients) {
  return gradients == v1::MemorySpec::GRADIENTS_UNSPECIFIED ||
         gradients == v1::MemorySpec::GRADIENTS_AUTO;
}

bool IsOpen(v1::MemorySpec::OptimizerState optimizer) {
  return optimizer == v1::MemorySpec::OPTIMIZER_STATE_UNSPECIFIED ||
         optimizer == v1::MemorySpec::OPTIMIZER_STATE_AUTO;
}

// A gradient that has a bound is measured, which one that is released cannot be.
bool MayRelease(const v1::JobSpec& spec) {
  const v1::MemorySpec& memory = spec.memory();
  const bool bounded = memory.drift_bound() > 0.0 && memory.fidelity() > v1::FIDELITY_EXACT;
  return IsOpen(memory.gradients()) && !bounded && MayReleaseGradients(spec.training());
}

// What of the host's memory the job may have beside the device: nothing of a CPU's, whose memory it
// is, unless the job names a budget.
int64_t HostRoom(const Device& device, const v1::JobSpec& spec) {
  const std::optional<int64_t> budget = HostBudgetBytes(spec);
  return budget ? std::min(*budget, device.host_bytes) : MachineOf(device).host_bytes;
}

bool MayUseHost(const std::vector<Device>& devices, const v1::JobSpec& spec) {
  return IsOpen(spec.memory().optimizer()) &&
         std::any_of(devices.begin(), devices.end(),
                     [&](const Device& device) { return HostRoom(device, spec) > 0; });
}

// What a job may have, of what it leaves open.
struct Choice {
  bool released = false;  // Its gradients.
  bool on_host = false;   // The optimizer's state.
};

CheckedJob With(const Choice& choice, CheckedJob job) {
  v1::MemorySpec& memory = *job.spec.mutable_memory();
  if (IsOpen(memory.gradients()))
    memory.set_gradients(choice.released ? v1::MemorySpec::GRADIENTS_RELEASED
                                         : v1::MemorySpec::GRADIENTS_KEPT);
  if (IsOpen(memory.optimizer()))
    memory.set_optimizer(choice.on_host ? v1::MemorySpec::OPTIMIZER_STATE_HOST
                                        : v1::MemorySpec::OPTIMIZER_STATE_DEVICE);
  if (!choice.released && !choice.on_host) return job;
  auto program = std::make_shared<program::Program>(*job.program);
  if (choice.released) program::ReleaseGradients(*program);
  if (choice.on_host) program->optimizer_on_host = true;
  job.program = std::move(program);
  return job;
}

// In the order of what they give up.
std::vector<Choice> ChoicesOf(const std::vector<Device>& devices, const v1::JobSpec& spec) {
  const bool release = MayRelease(spec), host = MayUseHost(devices, spec);
  std::vector<Choice> choices = {{}};
  if (release) choices.push_back({.released = true});
  if (host) choices.push_back({.on_host = true});
  if (release && host) choices.push_back({.released = true, .on_host = true});
  return choices;
}

struct Fitting {
  double seconds = std::numeric_limits<double>::infinity();  // Of a step; of none that fits.
  bool fastest = true;  // No device holds less than the fastest plan of it.
};

// The best of all devices.
absl::StatusOr<Fitting> FittingOf(const std::vector<Device>& devices, const CheckedJob& job,
                                  bool on_host, const RowLengths& lengths) {
  ASSIGN_OR_RETURN(const SharedPlans by_device, PlansByShare(devices, job, lengths));
  Fitting best;
  for (const Device& device : devices) {
    const std::vector<v1::Plan>& plans = by_device->at(device.name);
    const int64_t room = on_host ? HostRoom(device, job.spec) : INT64_MAX;
    const int chosen = ChosenOn(device, job.spec, plans, room);
    best.fastest &= chosen == 0;
    if (chosen >= 0)
      best.seconds = std::min(best.seconds, plans[static_cast<size_t>(chosen)].step_seconds());
  }
  return best;
}

}  // namespace

bool LeavesMemoryOpen(const std::vector<Device>& devices, const CheckedJob& job) {
  return ChoicesOf(devices, job.spec).size() > 1;
}

absl::Status FillAutoMemory(const std::vector<Device>& devices, const RowLengths& lengths,
                            CheckedJob& job) {
  const std::vector<Choice> choices = ChoicesOf(devices, job.spec);
  if (choices.size() == 1) return absl::OkStatus();
  CheckedJob best = With(choices.front(), job);
  double seconds = std::numeric_limits<double>::infinity();
  for (const Choice& choice : choices) {
    CheckedJob chosen = With(choice, job);
    const absl::StatusOr<Fitting> fitting = FittingOf(devices, chosen, choice.on_host, lengths);
    // What memory.host_budget has no room for is no choice.
    if (choice.on_host && absl::IsInvalidArgument(fitting.status())) continue;
    RETURN_IF_ERROR(fitting.status());
    const bool none = std::isinf(seconds);  // Of those before it fits.
    if (fitting->seconds < kWorthIt * seconds || (none && !choice.on_host)) {
      best = std::move(chosen);
      seconds = fitting->seconds;
    }
    if (fitting->fastest) break;
  }
  job = std::move(best);
  return absl::OkStatus();
}

absl::Status FillMemoryForSizes(const std::vector<Device>& devices, const RowLengths& lengths,
                                CheckedJob& job) {
  CheckedJob smallest = job;
  v1::TrainingSpec& training = *smallest.spec.mutable_training();
  if (training.per_device_train_batch_size() == kAuto) training.set_per_device_train_batch_size(1);
  if (training.max_seq_length() == kAuto)
    training.set_max_seq_length(static_cast<int32_t>(ShortestSequence(smallest.spec)));
  RETURN_IF_ERROR(FillAutoMemory(devices, lengths, smallest));
  if (smallest.program == job.program) return absl::OkStatus();  // Nothing is given up.
  *job.spec.mutable_memory() = smallest.spec.memory();
  job.program = smallest.program;
  return absl::OkStatus();
}

}  // namespace snug::server

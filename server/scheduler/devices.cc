// The devices as users and metrics see them; GPUs are looked at every few seconds.
#include <algorithm>
#include <utility>

#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {

void Scheduler::ShowDevices() {
  std::vector<v1::Device> devices;
  for (const Device& device : ledger_.devices()) {
    v1::Device& shown = devices.emplace_back();
    shown.set_name(device.name);
    shown.set_capacity_bytes(device.capacity_bytes);
    shown.set_reserved_bytes(ledger_.ReservedOn(device.name));
    shown.set_context_bytes(device.context_bytes);
    shown.set_threads(device.threads);
    shown.set_model(device.model);
    shown.set_total_bytes(device.total_bytes);
    shown.set_uuid(device.gpu.uuid);
    const auto use = gpu_uses_.find(device.name);
    if (use == gpu_uses_.end() || !use->second.ok()) continue;
    if (use->second->complete) shown.set_measured_bytes(use->second->ours());
    shown.set_others_bytes(use->second->others_bytes);
  }
  std::vector<v1::Job> running;
  for (const auto& [id, entry] : entries_)
    if (entry->attempt != nullptr) running.push_back(entry->record.job);
  metrics_.Devices(devices, running);
  index_.PutDevices(std::move(devices));
}

// The ledger's word, and of GPUs the driver's: neighbours ask nobody before they take memory.
std::vector<DeviceState> Scheduler::DeviceStates() const {
  std::vector<DeviceState> states = ledger_.Snapshot();
  for (DeviceState& state : states) {
    if (!state.gpu || settings_.gpu_driver == nullptr) continue;
    const auto use = gpu_uses_.find(state.name);
    state.answers = use != gpu_uses_.end() && use->second.ok();
    if (!state.answers) continue;
    const int64_t beside = ledger_.Find(state.name)->total_bytes - state.capacity_bytes;
    state.taken_bytes = std::max<int64_t>(0, use->second->others_bytes - beside);
  }
  return states;
}

// On a pool of its own: a GPU in trouble can keep the driver's answer for minutes.
void Scheduler::MeasureGpus() {
  const absl::Duration now = SinceBoot();
  const bool due = gpus_measured_ == absl::ZeroDuration() ||
                   now - gpus_measured_ > settings_.limits.measure_gpus;
  if (settings_.gpu_driver == nullptr || measuring_gpus_ || !due) return;
  gpus_measured_ = now;
  measuring_gpus_ = gpu_pool_.Post([this] {
    auto uses = std::make_shared<GpuUses>();
    for (const Device& device : settings_.devices)
      if (device.is_gpu())
        uses->emplace(device.name, ReadUse(*settings_.gpu_driver, device.gpu.index,
                                           settings_.launcher.state_dir));
    Post([this, uses] { OnGpusMeasured(std::move(*uses)); });
  });
}

void Scheduler::OnGpusMeasured(GpuUses uses) {
  measuring_gpus_ = false;
  for (const auto& [device, use] : uses) {
    const auto before = gpu_uses_.find(device);
    const bool was_well = before == gpu_uses_.end() || before->second.ok();
    if (!use.ok() && was_well) spdlog::error("{}: {}", device, use.status().message());
    if (use.ok() && !was_well) spdlog::info("{}: the driver answers again", device);
  }
  gpu_uses_ = std::move(uses);
  changed_ = true;  // A round of scheduling costs little.
  for (auto& [id, entry] : entries_)
    if (entry->attempt != nullptr) NoteProcessBytes(*entry);
  ShowDevices();
}

void Scheduler::NoteProcessBytes(Entry& entry) {
  const AttemptRecord& attempt = entry.attempt->record;
  const auto use = gpu_uses_.find(attempt.device);
  if (use == gpu_uses_.end() || !use->second.ok()) return;
  const auto& by_attempt = use->second->attempt_bytes;
  const auto bytes =
      by_attempt.find(AttemptDir(settings_.launcher.state_dir, attempt.job, attempt.epoch));
  v1::JobMemory& memory = *entry.record.job.mutable_memory();
  if (bytes == by_attempt.end() || bytes->second <= memory.process_peak_bytes()) return;
  memory.set_process_peak_bytes(bytes->second);
  Show(entry);
}

}  // namespace snug::server

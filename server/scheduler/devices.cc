// The devices as users and metrics see them; GPUs are looked at every few seconds.
#include <algorithm>
#include <utility>

#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/node/process_memory.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/scheduler.h"

namespace snug::server {
namespace {

// When its bytes will be free, in wall time; INT64_MAX: nobody knows.
int64_t EstimatedEnd(const Entry& entry) {
  const int64_t now_us = WallMicros();
  const bool ends = entry.state() == v1::Job::CANCELLING || entry.state() == v1::Job::PAUSING;
  if (entry.attempt->end.gone() || ends) return now_us;
  const absl::Duration left = entry.attempt->pace.LeftUntilEnd();
  return left < absl::Hours(24 * 365) ? now_us + absl::ToInt64Microseconds(left) : INT64_MAX;
}

v1::Reservation ReservationOf(const Entry& entry, const Ledger& ledger) {
  const v1::JobMemory& memory = entry.record.job.memory();
  v1::Reservation reservation;
  reservation.set_job(entry.id());
  const Promise promise = ledger.PromisedTo(entry.id());
  reservation.set_reserved_bytes(promise.bytes - promise.shared.bytes);
  reservation.set_shared_bytes(promise.shared.bytes);
  reservation.set_predicted_bytes(memory.predicted_peak_bytes());
  reservation.set_counted_bytes(memory.measured_peak_bytes());
  reservation.set_seen_bytes(memory.process_peak_bytes());
  reservation.set_threads(entry.attempt->record.plan.threads());
  return reservation;
}

}  // namespace

void Scheduler::ShowDevices() {
  std::vector<v1::Device> devices;
  for (const Device& device : ledger_.devices()) {
    v1::Device& shown = devices.emplace_back();
    shown.set_name(device.name);
    shown.set_capacity_bytes(device.capacity_bytes);
    shown.set_reserved_bytes(ledger_.ReservedOn(device.name));
    const SharedCount shared = ledger_.SharedOn(device.name);
    for (const auto& [digest, use] : shared.uses()) {
      v1::WeightsInUse& weights = *shown.add_shared_weights();
      weights.set_digest(digest);
      weights.set_bytes(use.bytes);
      weights.set_jobs(use.jobs);
    }
    shown.set_context_bytes(device.context_bytes);
    shown.set_threads(device.threads);
    shown.set_model(device.model);
    shown.set_total_bytes(device.total_bytes);
    shown.set_uuid(device.gpu.uuid);
    shown.set_trouble(TroubleOf(device));
    shown.set_drained(drained_.contains(device.id()));
    const absl::StatusOr<GpuUse>* use = looks_.Find(device.name);
    if (gpus_silent_ || use == nullptr || !use->ok()) continue;
    if ((*use)->complete) shown.set_measured_bytes((*use)->ours());
    shown.set_others_bytes((*use)->others_bytes);
  }
  std::vector<v1::Job> running;  // As far as metrics need them: with a plan they are large.
  for (const std::string& id : attended_) {
    const auto found = entries_.find(id);
    if (found == entries_.end() || found->second->attempt == nullptr) continue;
    const Entry& entry = *found->second;
    v1::Job& job = running.emplace_back();
    job.set_device(entry.record.job.device());
    *job.mutable_memory() = entry.record.job.memory();
    for (v1::Device& device : devices)
      if (ledger_.Find(device.name()) == ledger_.Find(entry.attempt->record.device))
        *device.add_reservations() = ReservationOf(entry, ledger_);
  }
  metrics_.Devices(devices, running);
  metrics_.Host(ledger_.host_bytes(), ledger_.HostReserved());
  for (const auto& [id, bytes] : ledger_.Elsewhere()) {
    v1::Device& shown = devices.emplace_back();
    shown.set_name(id);
    shown.set_reserved_bytes(bytes);
    shown.set_trouble("no device of this daemon since it was restarted; an attempt is left there");
  }
  index_.PutDevices(std::move(devices));
}

// An attempt that outlived a daemon is where it was, whatever that is called now.
void Scheduler::ShowPlace(Entry& entry) {
  const Device* device = ledger_.Find(entry.attempt->record.device);
  entry.record.job.set_device(device == nullptr ? entry.attempt->record.device : device->name);
  index_.Put(entry.record);
}

// The ledger's word, and of GPUs the driver's: neighbours ask nobody before they take memory.
std::vector<DeviceState> Scheduler::DeviceStates() const {
  std::vector<DeviceState> states = ledger_.Snapshot();
  for (DeviceState& state : states) {
    for (const std::string& id : attended_) {
      const auto found = entries_.find(id);
      if (found == entries_.end() || found->second->attempt == nullptr) continue;
      const Entry& entry = *found->second;
      if (ledger_.Find(entry.attempt->record.device) != ledger_.Find(state.name)) continue;
      const Promise promise = ledger_.PromisedTo(entry.id());
      const std::string& owner = entry.record.job.owner();
      state.running.push_back(
          {.key = KeyOf(entry.record),
           .bytes = promise.bytes,
           .shared = promise.shared,
           .end_us = EstimatedEnd(entry),
           .owner = tenant_use_.ShareOf(owner) == INT64_MAX ? std::string() : owner});
    }
    state.trouble = TroubleOf(*ledger_.Find(state.name));
    if (state.trouble.empty() && drained_.contains(ledger_.Find(state.name)->id()))
      state.trouble = "it is drained";
    const absl::StatusOr<GpuUse>* use = looks_.Find(state.name);
    if (use == nullptr || !use->ok()) continue;
    const int64_t beside = (*use)->total_bytes - state.capacity_bytes;
    state.taken_bytes = std::max<int64_t>(0, (*use)->others_bytes - beside);
  }
  return states;
}

std::string Scheduler::TroubleOf(const Device& device) const {
  if (!device.is_gpu() || settings_.gpu_watch == nullptr) return "";
  if (gpus_silent_) return "the NVIDIA driver does not answer: it keeps a question waiting";
  const absl::StatusOr<GpuUse>* use = looks_.Find(device.name);
  return std::string((use == nullptr ? device.gpu.trouble : use->status()).message());
}

// Nothing is decided meanwhile: a job would go to the CPU beside a GPU that is free.
bool Scheduler::AwaitsLook() const {
  if (settings_.gpu_watch == nullptr || gpus_silent_) return false;
  return std::any_of(settings_.devices.begin(), settings_.devices.end(), [&](const Device& device) {
    return device.is_gpu() && looks_.Find(device.name) == nullptr;
  });
}

void Scheduler::LookAtGpus() {
  if (settings_.gpu_watch == nullptr) return;
  if (looks_.Silent(SinceBoot()) != gpus_silent_) {
    gpus_silent_ = !gpus_silent_;
    changed_ = true;
    if (gpus_silent_) spdlog::error("the NVIDIA driver does not answer");
    ShowDevices();
  }
  if (!looks_.Begin(SinceBoot())) return;
  gpu_pool_.Post([this] {
    const GpuReadings readings = settings_.gpu_watch->Look();
    auto uses = std::make_shared<GpuLooks::Uses>();
    for (const Device& device : settings_.devices)
      if (device.is_gpu())
        uses->emplace(device.name, UseOf(device, readings, settings_.launcher.state_dir));
    Post([this, uses] { OnGpusSeen(*uses); });
  });
}

void Scheduler::OnGpusSeen(const GpuLooks::Uses& uses) {
  std::map<std::string, std::string> before;
  for (const auto& [device, use] : uses) before[device] = TroubleOf(*ledger_.Find(device));
  if (!looks_.End(uses)) return;
  for (const auto& [device, use] : uses) {
    if (use.ok() && !before[device].empty()) spdlog::info("{}: can be used again", device);
    if (!use.ok() && use.status().message() != before[device])
      spdlog::error("{}: {}", device, use.status().message());
  }
  changed_ = true;  // A round of scheduling costs little.
  for (const std::string& id : attended_)
    if (Entry* entry = Find(id); entry != nullptr && entry->attempt != nullptr)
      NoteProcessBytes(*entry);
  ShowDevices();
}

// The driver sees the workers of GPUs, the kernel those of CPUs.
void Scheduler::NoteProcessBytes(Entry& entry) {
  const AttemptRecord& attempt = entry.attempt->record;
  entry.attempt->seen = SinceBoot();
  int64_t bytes = 0;
  if (const Device* device = ledger_.Find(attempt.device); device != nullptr && !device->is_gpu())
    bytes = PeakResidentBytes(static_cast<pid_t>(entry.record.job.worker_pid()));
  const absl::StatusOr<GpuUse>* use = looks_.Find(entry.record.job.device());
  if (use != nullptr && use->ok()) {
    const auto& by_attempt = (*use)->attempt_bytes;
    const auto found =
        by_attempt.find(AttemptDir(settings_.launcher.state_dir, attempt.job, attempt.epoch));
    if (found != by_attempt.end()) bytes = found->second;
  }
  v1::JobMemory& memory = *entry.record.job.mutable_memory();
  if (bytes <= memory.process_peak_bytes()) return;
  memory.set_process_peak_bytes(bytes);
  Show(entry);
}

}  // namespace snug::server

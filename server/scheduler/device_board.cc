#include "server/scheduler/device_board.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/job/log.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"
#include "server/scheduler/core.h"
#include "worker/program/planning/memory_look.h"

namespace snug::server {
namespace {

// When its bytes will be free, in wall time; INT64_MAX: nobody knows.
int64_t EstimatedEnd(const Entry& entry) {
  const int64_t now_us = WallMicros();
  const bool ends =
      entry.state() == v1::Job::STATE_CANCELLING || entry.state() == v1::Job::STATE_PAUSING;
  if (entry.attempt->end.gone() || ends) return now_us;
  const absl::Duration left = LeftUntilEnd(entry.record.job);
  return left < absl::Hours(24 * 365) ? now_us + absl::ToInt64Microseconds(left) : INT64_MAX;
}

v1::Reservation ReservationOf(const Entry& entry, const Ledger& ledger) {
  const v1::JobMemory& memory = entry.record.job.memory();
  v1::Reservation reservation;
  reservation.set_job(entry.key());
  const Promise promise = ledger.PromisedTo(entry.key());
  reservation.set_reserved_bytes(promise.bytes - promise.shared.bytes);
  reservation.set_shared_bytes(promise.shared.bytes);
  reservation.set_predicted_bytes(memory.predicted_peak_bytes());
  reservation.set_counted_bytes(memory.measured_peak_bytes());
  reservation.set_seen_bytes(memory.process_peak_bytes());
  reservation.set_threads(entry.attempt->record.plan.threads());
  return reservation;
}

}  // namespace

void DeviceBoard::Show() {
  std::vector<v1::Device> devices;
  for (const Device& device : core_.ledger.devices()) {
    v1::Device& shown = devices.emplace_back();
    shown.set_name(device.name);
    shown.set_capacity_bytes(device.capacity_bytes);
    shown.set_reserved_bytes(core_.ledger.ReservedOn(device.name));
    const SharedCount shared = core_.ledger.SharedOn(device.name);
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
    shown.set_drained(core_.drained.contains(device.id()));
    const absl::StatusOr<GpuUse>* use = looks_.Find(device.name);
    if (gpus_silent_ || use == nullptr || !use->ok()) continue;
    if ((*use)->complete) shown.set_measured_bytes((*use)->ours());
    shown.set_others_bytes((*use)->others_bytes);
  }
  std::vector<v1::Job> running;  // As far as metrics need them: with a plan they are large.
  core_.EachAttended([&](const Entry& entry) {
    v1::Job& job = running.emplace_back();
    job.set_device(entry.record.job.device());
    *job.mutable_memory() = entry.record.job.memory();
    for (v1::Device& device : devices)
      if (core_.ledger.Find(device.name()) == core_.ledger.Find(entry.attempt->record.device))
        *device.add_reservations() = ReservationOf(entry, core_.ledger);
  });
  core_.metrics.Devices(devices, running);
  core_.metrics.Host(core_.ledger.host_bytes(), core_.ledger.HostReserved());
  for (const auto& [id, bytes] : core_.ledger.Elsewhere()) {
    v1::Device& shown = devices.emplace_back();
    shown.set_name(id);
    shown.set_reserved_bytes(bytes);
    shown.set_trouble("no device of this daemon since it was restarted; an attempt is left there");
  }
  core_.index.PutDevices(std::move(devices));
}

std::string DeviceBoard::WhyItMoves(const Entry& entry) const {
  if (entry.state() != v1::Job::STATE_RUNNING || entry.attempt == nullptr) return "";
  const v1::Job& job = entry.record.job;
  if (job.displacement().pending())
    return absl::StrCat("put back from ", job.device(), ": ", job.displacement().reason());
  const auto found = core_.drained.find(entry.attempt->record.device);
  const bool moves = found != core_.drained.end() && found->second.move;
  return moves ? absl::StrCat("moved off ", job.device(), ", which is drained") : "";
}

// An attempt that outlived a daemon is where it was, whatever that is called now.
void DeviceBoard::ShowPlace(Entry& entry) {
  const Device* device = core_.ledger.Find(entry.attempt->record.device);
  entry.record.job.set_device(device == nullptr ? entry.attempt->record.device : device->name);
  core_.index.Put(entry.record);
}

// The ledger's word, and of GPUs the driver's: neighbours ask nobody before they take memory.
std::vector<DeviceState> DeviceBoard::States() const {
  std::vector<DeviceState> states = core_.ledger.Snapshot();
  for (DeviceState& state : states) {
    core_.EachAttended([&](const Entry& entry) {
      if (core_.ledger.Find(entry.attempt->record.device) != core_.ledger.Find(state.name)) return;
      const Promise promise = core_.ledger.PromisedTo(entry.key());
      const std::string& owner = entry.record.job.owner();
      state.running.push_back(
          {.key = PlaceInLine(entry.record),
           .bytes = promise.bytes,
           .shared = promise.shared,
           .end_us = EstimatedEnd(entry),
           .owner = core_.tenant_use.ShareOf(owner) == INT64_MAX ? std::string() : owner,
           .bears = entry.attempt->interference.bears()});
    });
    state.trouble = TroubleOf(*core_.ledger.Find(state.name));
    if (state.trouble.empty() && core_.drained.contains(core_.ledger.Find(state.name)->id()))
      state.trouble = "it is drained";
    const absl::StatusOr<GpuUse>* use = looks_.Find(state.name);
    if (use == nullptr || !use->ok()) continue;
    const int64_t beside = (*use)->total_bytes - state.capacity_bytes;
    state.taken_bytes = std::max<int64_t>(0, (*use)->others_bytes - beside);
  }
  return states;
}

// A GPU whose process cannot be ended may be what holds it.
std::string DeviceBoard::TroubleOf(const Device& device) const {
  std::string trouble = DriverTroubleOf(device);
  if (!trouble.empty() || !device.is_gpu()) return trouble;
  core_.EachAttended([&](const Entry& entry) {
    const Device* at = core_.ledger.Find(entry.attempt->record.device);
    if (entry.attempt->undying && at != nullptr && at->name == device.name)
      trouble = "a process on it does not end, though it was killed";
  });
  return trouble;
}

std::string DeviceBoard::DriverTroubleOf(const Device& device) const {
  if (!device.is_gpu() || !core_.settings.node->WatchesGpus()) return "";
  if (gpus_silent_) return "the NVIDIA driver does not answer: it keeps a question waiting";
  const absl::StatusOr<GpuUse>* use = looks_.Find(device.name);
  return std::string((use == nullptr ? device.gpu.trouble : use->status()).message());
}

// Nothing is decided meanwhile: a job would go to the CPU beside a GPU that is free.
bool DeviceBoard::AwaitsLook() const {
  if (!core_.settings.node->WatchesGpus() || gpus_silent_) return false;
  return std::any_of(
      core_.settings.devices.begin(), core_.settings.devices.end(),
      [&](const Device& device) { return device.is_gpu() && looks_.Find(device.name) == nullptr; });
}

void DeviceBoard::LookAtGpus() {
  if (!core_.settings.node->WatchesGpus()) return;
  if (looks_.Silent(SinceBoot()) != gpus_silent_) {
    gpus_silent_ = !gpus_silent_;
    core_.needs_round = true;
    if (gpus_silent_) spdlog::error("the NVIDIA driver does not answer");
    Show();
  }
  if (!looks_.Begin(SinceBoot())) return;
  gpu_pool_.Post([this] {
    auto uses = std::make_shared<GpuUses>(core_.settings.node->LookAtGpus(core_.settings.devices));
    core_.Post([this, uses] { OnGpusSeen(*uses); });
  });
}

void DeviceBoard::OnGpusSeen(const GpuUses& uses) {
  std::map<std::string, std::string> before;
  for (const auto& [device, use] : uses)
    before[device] = DriverTroubleOf(*core_.ledger.Find(device));
  if (!looks_.End(uses)) return;
  for (const auto& [device, use] : uses) {
    if (use.ok() && !before[device].empty()) spdlog::info("{}: can be used again", device);
    if (!use.ok() && use.status().message() != before[device])
      spdlog::error("{}: {}", device, use.status().message());
  }
  core_.needs_round = true;  // A round of scheduling costs little.
  core_.EachAttended([&](Entry& entry) {
    NoteProcessBytes(entry);
    const int64_t bytes = DriverBytes(entry);
    if (bytes > 0 && Judge(entry, bytes)) core_.Show(entry);
  });
  Show();
}

int64_t DeviceBoard::DriverBytes(const Entry& entry) const {
  const AttemptRecord& attempt = entry.attempt->record;
  const absl::StatusOr<GpuUse>* use = looks_.Find(entry.record.job.device());
  if (use == nullptr || !use->ok()) return 0;
  const auto& by_attempt = (*use)->attempt_bytes;
  const auto found =
      by_attempt.find(AttemptDir(core_.settings.state_dir, attempt.job, attempt.epoch));
  return found == by_attempt.end() ? 0 : found->second;
}

// The driver sees the workers of GPUs, the kernel those of CPUs.
void DeviceBoard::NoteProcessBytes(Entry& entry) {
  entry.attempt->seen = SinceBoot();
  int64_t bytes = DriverBytes(entry);
  if (const Device* device = core_.ledger.Find(entry.attempt->record.device);
      device != nullptr && !device->is_gpu())
    bytes = entry.attempt->processes->PeakHostBytes(entry.record.job.worker_pid());
  v1::JobMemory& memory = *entry.record.job.mutable_memory();
  if (bytes <= memory.process_peak_bytes()) return;
  memory.set_process_peak_bytes(bytes);
  core_.Show(entry);
}

// Where the driver tells of the process, its next word counts: the last may be of before the look.
void DeviceBoard::NoteLook(Entry& entry) {
  if (DriverBytes(entry) == 0 && Judge(entry, 0)) core_.Show(entry);
}

// A worker of a GPU sees what all take. Amid a change of plans nobody knows which one its looks are
// of.
bool DeviceBoard::Judge(Entry& entry, int64_t by_driver) {
  v1::Job& job = entry.record.job;
  v1::JobMemory& memory = *job.mutable_memory();
  const std::string& place = entry.attempt->record.device;
  const Device* device = core_.ledger.Find(place);
  const bool alone = core_.ledger.ReservedOn(place) == core_.ledger.PromisedTo(entry.key()).bytes;
  if (device == nullptr || (device->is_gpu() && by_driver == 0 && !alone)) return false;
  if (memory.looks().empty() || job.plan_changes().has_pending()) return false;
  std::vector<program::MemoryLook> looks;
  for (const v1::MemoryLook& look : memory.looks())
    looks.push_back({look.steps(), look.counted_bytes(), look.seen_bytes()});
  const program::Uncounted now =
      program::UncountedOf(memory.predicted_peak_bytes(), looks, by_driver);
  if (now.bytes == memory.uncounted_bytes() && now.warning == memory.warning()) return false;
  if (memory.warning().empty() && !now.warning.empty())
    spdlog::warn("job {}: {}", entry.key(), now.warning);
  memory.set_uncounted_bytes(now.bytes);
  memory.set_warning(now.warning);
  return true;
}

}  // namespace snug::server

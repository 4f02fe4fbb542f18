#include "server/scheduler/drains.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/log.h"

namespace snug::server {
namespace {

absl::Status NoSuchDevice(const std::string& name, const std::vector<Device>& devices) {
  const auto add_name = [](std::string* out, const Device& device) { out->append(device.name); };
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "device \"", name,
                        "\" is none of this daemon's: ", absl::StrJoin(devices, ", ", add_name))),
                    "DEVICE_NOT_FOUND");
}

}  // namespace

void Drains::Drain(const v1::DrainDeviceRequest& request, Reply reply) const {
  Change(request.device(), {.drained = true, .move = request.move()}, std::move(reply));
}

void Drains::Undrain(const v1::UndrainDeviceRequest& request, Reply reply) const {
  Change(request.device(), {.drained = false}, std::move(reply));
}

bool Drains::Moves(const Entry& entry) const {
  if (entry.state() != v1::Job::RUNNING || entry.attempt == nullptr) return false;
  const auto found = scheduler_.drained_.find(entry.attempt->record.device);
  return found != scheduler_.drained_.end() && found->second.move;
}

void Drains::Change(const std::string& device, DrainRecord change, Reply reply) const {
  if (scheduler_.draining_) return reply(Draining());
  const bool posted = scheduler_.inbox_.TryPost(
      [drains = *this, device, change, reply] { reply(drains.DoChange(device, change)); });
  if (!posted) reply(QueueFull("waiting requests", kMaxInboxTasks));
}

absl::StatusOr<v1::Device> Drains::DoChange(const std::string& name, DrainRecord change) const {
  Scheduler& s = scheduler_;
  const Device* device = s.ledger_.Find(name);
  if (device == nullptr) return NoSuchDevice(name, s.ledger_.devices());
  change.device = device->id();
  RETURN_IF_ERROR(s.store_.Commit({.drain = change}));
  if (change.drained)
    s.drained_[change.device] = change;
  else
    s.drained_.erase(change.device);
  spdlog::info("{}: {}", name,
               !change.drained ? "is undrained"
               : change.move   ? "is drained; its jobs move"
                               : "is drained");
  s.changed_ = true;
  for (const std::string& id : s.attended_)
    if (const Entry* entry = s.Find(id); entry != nullptr && Moves(*entry)) s.TellToStop(*entry);
  s.ShowDevices();
  for (v1::Device& shown : s.index_.devices())
    if (shown.name() == device->name) return std::move(shown);
  return absl::InternalError(absl::StrCat(device->name, " is not shown"));
}

}  // namespace snug::server

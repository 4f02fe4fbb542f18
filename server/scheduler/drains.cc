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

void Drains::Change(const std::string& device, DrainRecord change, Reply reply) const {
  const absl::Status posted = core_.TryPost(
      [drains = *this, device, change, reply] { reply(drains.DoChange(device, change)); });
  if (!posted.ok()) reply(posted);
}

absl::StatusOr<v1::Device> Drains::DoChange(const std::string& name, DrainRecord change) const {
  SchedulerCore& s = core_;
  const Device* device = s.ledger.Find(name);
  if (device == nullptr) return NoSuchDevice(name, s.ledger.devices());
  change.device = device->id();
  RETURN_IF_ERROR(s.store.Commit({.drain = change}));
  if (change.drained)
    s.drained[change.device] = change;
  else
    s.drained.erase(change.device);
  spdlog::info("{}: {}", name,
               !change.drained ? "is undrained"
               : change.move   ? "is drained; its jobs move"
                               : "is drained");
  s.needs_round = true;
  s.EachAttended([&](const Entry& entry) {
    if (s.board.MovesOff(entry)) s.attempts.TellToStop(entry);
  });
  s.board.Show();
  for (v1::Device& shown : s.index.devices())
    if (shown.name() == device->name) return std::move(shown);
  return absl::InternalError(absl::StrCat(device->name, " is not shown"));
}

}  // namespace snug::server

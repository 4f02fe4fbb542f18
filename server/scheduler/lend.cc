#include "server/scheduler/lend.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

std::string Exactly(int64_t bytes) {
  return absl::StrCat(FormatBytes(bytes), " (", bytes, " bytes)");
}

// Device by device: what is needed there, and what is free.
absl::Status NoRoom(const QueuedJob& job, const std::vector<DeviceState>& devices) {
  std::string there;
  for (const DeviceState& device : devices) {
    const auto plans = job.plans.find(device.name);
    if (plans == job.plans.end()) continue;
    const auto least = std::min_element(plans->second.begin(), plans->second.end());
    const int64_t free = device.capacity_bytes - device.reserved_bytes - device.taken_bytes;
    absl::StrAppend(&there, there.empty() ? "" : "; ", Exactly(least->bytes), " are needed on ",
                    device.name, ", ", Exactly(std::max<int64_t>(free, 0)), " are free",
                    least->bytes <= free ? ", for jobs that wait" : "",
                    device.trouble.empty() ? "" : absl::StrCat(", but ", device.trouble));
  }
  return WithReason(absl::ResourceExhaustedError(absl::StrCat("no room to answer: ", there)),
                    "NO_ROOM_TO_ANSWER");
}

}  // namespace

void Lender::Lend(std::string id, DevicePlans plans,
                  std::function<void(absl::StatusOr<Lent>)> reply) const {
  const absl::Status posted =
      core_.TryPost([lender = *this, id = std::move(id), plans = std::move(plans), reply] {
        const bool draining = lender.core_.draining;
        reply(draining ? absl::StatusOr<Lent>(Draining()) : lender.DoLend(id, plans));
      });
  if (!posted.ok()) reply(posted);
}

absl::StatusOr<Lent> Lender::DoLend(const std::string& id, const DevicePlans& plans) const {
  SchedulerCore& s = core_;
  if (s.board.AwaitsLook())
    return absl::UnavailableError("the GPUs are being looked at: try again");
  QueuedJob asked{.id = id};
  for (const auto& [device, there] : plans)
    for (const v1::Plan& plan : there)
      asked.plans[device].emplace_back(plan.peak_bytes(), plan.threads());
  const std::vector<DeviceState> devices = s.board.States();
  const std::optional<Placement> placed = s.waiting->PlaceBehind(asked, devices, WallMicros());
  if (!placed) return NoRoom(asked, devices);
  RETURN_IF_ERROR(s.ledger.Reserve(placed->device, id, {.bytes = placed->bytes}));
  s.board.Show();
  return Lent{.device = *s.ledger.Find(placed->device),
              .plan = plans.at(placed->device)[static_cast<size_t>(placed->plan)]};
}

void Lender::GiveBack(std::string id) const {
  core_.inbox.Post([&s = core_, id = std::move(id)] {
    s.ledger.Release(id);
    s.needs_round = true;
    s.board.Show();
  });
}

}  // namespace snug::server

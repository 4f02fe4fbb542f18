#include "server/place/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {

absl::Status Ledger::Reserve(const std::string& device, const std::string& job,
                             const Promise& promise) {
  const Device* found = Find(device);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no device ", device));
  if (promises_.contains(job))
    return absl::InternalError(absl::StrCat("job ", job, " has a reservation already"));
  const int64_t free_bytes = found->capacity_bytes - ReservedOn(device);
  const int64_t beside = SharedOn(device).Beside(promise.bytes, promise.shared);
  if (beside > free_bytes)
    return absl::ResourceExhaustedError(absl::StrCat("job ", job, " needs ", beside, " bytes; ",
                                                     device, " has ", free_bytes, " free"));
  RETURN_IF_ERROR(CheckHost(job, promise.host_bytes));
  promises_[job] = {promise, found->id()};
  return absl::OkStatus();
}

void Ledger::Restore(const std::string& device, const std::string& job, const Promise& promise) {
  promises_[job] = {promise, IdOf(device)};
}

absl::Status Ledger::CheckHost(const std::string& job, int64_t more) const {
  const int64_t free_bytes = host_bytes_ - HostReserved();
  if (more <= 0 || more <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "job ", job, " needs ", more, " bytes of the host's memory; ", free_bytes, " are free"));
}

absl::Status Ledger::Resize(const std::string& job, int64_t bytes, int64_t host_bytes) {
  const auto promise = promises_.find(job);
  if (promise == promises_.end())
    return absl::InternalError(absl::StrCat("job ", job, " has no reservation"));
  const Device* device = Find(promise->second.device);
  const int64_t more = bytes - promise->second.bytes;
  const int64_t free_bytes =
      device == nullptr ? 0 : device->capacity_bytes - ReservedOn(device->name);
  if (more > 0 && more > free_bytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", job, " needs ", more, " bytes more; its device has ", free_bytes, " free"));
  RETURN_IF_ERROR(CheckHost(job, host_bytes - promise->second.host_bytes));
  promise->second.bytes = bytes;
  promise->second.host_bytes = host_bytes;
  return absl::OkStatus();
}

void Ledger::Release(const std::string& job) { promises_.erase(job); }

int64_t Ledger::ReservedOn(const std::string& device) const {
  int64_t bytes = 0;
  SharedCount shared;
  for (const auto& [job, promise] : promises_)
    if (promise.device == IdOf(device)) bytes += shared.Add(promise.bytes, promise.shared);
  return bytes;
}

int Ledger::JobsOn(const std::string& device) const {
  const std::string& id = IdOf(device);
  return static_cast<int>(
      std::count_if(promises_.begin(), promises_.end(),
                    [&](const auto& promise) { return promise.second.device == id; }));
}

SharedCount Ledger::SharedOn(const std::string& device) const {
  SharedCount shared;
  for (const auto& [job, promise] : promises_)
    if (promise.device == IdOf(device)) shared.Add(promise.bytes, promise.shared);
  return shared;
}

int64_t Ledger::HostReserved() const {
  int64_t bytes = 0;
  for (const auto& [job, promise] : promises_) bytes += promise.host_bytes;
  return bytes;
}

Promise Ledger::PromisedTo(const std::string& job) const {
  const auto promise = promises_.find(job);
  return promise == promises_.end() ? Promise() : Promise(promise->second);
}

std::map<std::string, int64_t> Ledger::Elsewhere() const {
  std::map<std::string, int64_t> bytes;
  for (const auto& [job, promise] : promises_)
    if (Find(promise.device) == nullptr) bytes[promise.device] = ReservedOn(promise.device);
  return bytes;
}

const Device* Ledger::Find(const std::string& device) const {
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const Device& known) {
    return known.name == device || known.id() == device;
  });
  return found == devices_.end() ? nullptr : &*found;
}

const std::string& Ledger::IdOf(const std::string& device) const {
  const Device* known = Find(device);
  return known == nullptr ? device : known->id();
}

std::vector<DeviceState> Ledger::Snapshot() const {
  std::vector<DeviceState> states = StatesOf(devices_);
  for (DeviceState& state : states) {
    state.host_capacity_bytes = host_bytes_;
    state.host_free_bytes = host_bytes_ - HostReserved();
    for (const auto& [job, promise] : promises_) {
      if (promise.device != IdOf(state.name)) continue;
      state.reserved_bytes += state.shared.Add(promise.bytes, promise.shared);
      state.jobs += 1;
    }
  }
  return states;
}

}  // namespace snug::server

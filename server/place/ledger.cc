#include "server/place/ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace snug::server {

absl::Status Ledger::Reserve(const std::string& device, const std::string& job, int64_t bytes,
                             const SharedWeights& shared) {
  const Device* found = Find(device);
  if (found == nullptr) return absl::NotFoundError(absl::StrCat("no device ", device));
  if (promises_.contains(job))
    return absl::InternalError(absl::StrCat("job ", job, " has a reservation already"));
  const int64_t free_bytes = found->capacity_bytes - ReservedOn(device);
  const int64_t beside = SharedOn(device).Beside(bytes, shared);
  if (beside > free_bytes)
    return absl::ResourceExhaustedError(absl::StrCat("job ", job, " needs ", beside, " bytes; ",
                                                     device, " has ", free_bytes, " free"));
  promises_[job] = {found->id(), bytes, shared};
  return absl::OkStatus();
}

void Ledger::Restore(const std::string& device, const std::string& job, int64_t bytes,
                     const SharedWeights& shared) {
  promises_[job] = {IdOf(device), bytes, shared};
}

absl::Status Ledger::Resize(const std::string& job, int64_t bytes) {
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
  promise->second.bytes = bytes;
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

SharedCount Ledger::SharedOn(const std::string& device) const {
  SharedCount shared;
  for (const auto& [job, promise] : promises_)
    if (promise.device == IdOf(device)) shared.Add(promise.bytes, promise.shared);
  return shared;
}

SharedWeights Ledger::SharedBy(const std::string& job) const {
  const auto promise = promises_.find(job);
  return promise == promises_.end() ? SharedWeights() : promise->second.shared;
}

int64_t Ledger::ReservedFor(const std::string& job) const {
  const auto promise = promises_.find(job);
  return promise == promises_.end() ? 0 : promise->second.bytes;
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
    for (const auto& [job, promise] : promises_) {
      if (promise.device != IdOf(state.name)) continue;
      state.reserved_bytes += state.shared.Add(promise.bytes, promise.shared);
      state.jobs += 1;
    }
  }
  return states;
}

}  // namespace snug::server

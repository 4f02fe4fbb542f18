#include "server/data/memory_shares.h"

#include "server/job/errors.h"
#include "server/node/clock.h"

namespace snug::server {
namespace {

// Nobody says when a caller no longer wants what it waits for, so it is asked so often.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);

}  // namespace

void MemoryShares::SetCount(int count) {
  absl::MutexLock lock(&mutex_);
  count_ = count;
  changed_.SignalAll();
}

absl::Status MemoryShares::Take(const std::atomic<bool>* cancelled, absl::Duration until) {
  absl::MutexLock lock(&mutex_);
  const int64_t ticket = tickets_++;
  waiting_.insert(ticket);
  const absl::Status status = WaitFor(ticket, cancelled, until);
  waiting_.erase(ticket);
  if (status.ok()) ++taken_;
  changed_.SignalAll();  // Another one is next.
  return status;
}

absl::Status MemoryShares::WaitFor(int64_t ticket, const std::atomic<bool>* cancelled,
                                   absl::Duration until) {
  while (taken_ >= count_ || *waiting_.begin() != ticket) {
    if (cancelled != nullptr && cancelled->load()) return absl::CancelledError("cancelled");
    if (SinceBoot() >= until) return QueueFull("processes that prepare", count_);
    changed_.WaitWithTimeout(&mutex_, kBetweenLooks);
  }
  return absl::OkStatus();
}

void MemoryShares::GiveBack() {
  absl::MutexLock lock(&mutex_);
  --taken_;
  changed_.SignalAll();
}

}  // namespace snug::server

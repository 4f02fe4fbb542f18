#include "server/scheduler/fair_pool.h"

namespace snug::server {
namespace {

// Whether it is done.
bool Run(FairWork& work, bool small_only) {
  if (small_only && work.run_briefly) return work.run_briefly();
  work.run();
  return true;
}

}  // namespace

FairPool::FairPool(Threads threads) : max_waiting_(threads.waiting) {
  for (int i = 0; i < threads.any; ++i) threads_.emplace_back([this] { Loop(false); });
  for (int i = 0; i < threads.small; ++i) threads_.emplace_back([this] { Loop(true); });
}

FairPool::~FairPool() { Stop(); }

size_t FairPool::WaitingOf(const std::string& user) const {
  absl::MutexLock lock(&mutex_);
  const auto found = waiting_of_.find(user);
  return found == waiting_of_.end() ? 0 : found->second;
}

bool FairPool::Post(FairWork work) {
  absl::MutexLock lock(&mutex_);
  // Small work, which waits for less, has as many places more.
  if (stopping_ || waiting_ >= (work.small ? 2 : 1) * max_waiting_) return false;
  Add(std::move(work));
  return true;
}

void FairPool::Add(FairWork work) {
  ++waiting_;
  ++waiting_of_[work.user];
  const Place place = {-int64_t{work.priority}, arrivals_++};
  if (Insert(place, std::move(work))) changed_.SignalAll();
}

bool FairPool::Insert(Place place, FairWork work) {
  if (!work.key.empty() && running_keys_.contains(work.key)) {
    behind_[work.key].emplace(place, std::move(work));
    return false;
  }
  Queues& queues = queues_[work.user];
  (work.small ? queues.small : queues.large).emplace(place, std::move(work));
  return true;
}

void FairPool::Forget(const std::string& user) {
  --waiting_;
  const auto found = waiting_of_.find(user);
  if (--found->second == 0) waiting_of_.erase(found);
}

void FairPool::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    queues_.clear();
    behind_.clear();
    waiting_of_.clear();
    waiting_ = 0;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void FairPool::Loop(bool small_only) {
  while (true) {
    std::optional<FairWork> work;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && !(work = Take(small_only))) changed_.Wait(&mutex_);
      if (stopping_) return;
    }
    const std::string key = work->key;
    const bool done = Run(*work, small_only);
    absl::MutexLock lock(&mutex_);
    running_keys_.erase(key);
    if (!done && !stopping_) {
      work->small = false;
      Add(*std::move(work));
    }
    const auto behind = behind_.find(key);
    if (behind == behind_.end()) continue;
    auto next = behind->second.extract(behind->second.begin());
    if (behind->second.empty()) behind_.erase(behind);
    // This thread takes the next piece itself. Others are woken where more is left for them, or
    // where it is not this one's to take.
    const bool for_others = !queues_.empty() || (small_only && !next.mapped().small);
    Insert(next.key(), std::move(next.mapped()));
    if (for_others) changed_.SignalAll();
  }
}

std::optional<FairWork> FairPool::Take(bool small_only) {
  const size_t users = queues_.size();
  auto at = queues_.upper_bound(last_user_);
  for (size_t asked = 0; asked < users; ++asked) {
    if (at == queues_.end()) at = queues_.begin();
    const auto mine = at++;
    std::optional<FairWork> work = TakeOf(mine->second, small_only);
    if (mine->second.small.empty() && mine->second.large.empty()) queues_.erase(mine);
    if (!work) continue;
    last_user_ = work->user;
    if (!work->key.empty()) running_keys_.insert(work->key);
    return work;
  }
  return std::nullopt;
}

std::optional<FairWork> FairPool::TakeOf(Queues& queues, bool small_only) {
  while (true) {
    Queue& queue = queues.First(small_only);
    if (queue.empty()) return std::nullopt;
    auto first = queue.extract(queue.begin());
    FairWork& work = first.mapped();
    if (work.key.empty() || !running_keys_.contains(work.key)) {
      Forget(work.user);
      return std::move(work);
    }
    behind_[work.key].emplace(first.key(), std::move(work));
  }
}

}  // namespace snug::server

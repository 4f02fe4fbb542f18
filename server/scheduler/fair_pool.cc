#include "server/scheduler/fair_pool.h"

namespace snug::server {

FairPool::FairPool(Threads threads) : max_waiting_(threads.waiting) {
  for (int i = 0; i < threads.any; ++i) threads_.emplace_back([this] { Loop(false); });
  for (int i = 0; i < threads.small; ++i) threads_.emplace_back([this] { Loop(true); });
}

FairPool::~FairPool() { Stop(); }

bool FairPool::Post(FairWork work) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || waiting_ >= max_waiting_) return false;
  const Place place = {-int64_t{work.priority}, arrivals_++};
  queues_[work.user].emplace(place, std::move(work));
  ++waiting_;
  changed_.SignalAll();
  return true;
}

void FairPool::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    queues_.clear();
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
    work->run();
    absl::MutexLock lock(&mutex_);
    running_keys_.erase(work->key);
    changed_.SignalAll();
  }
}

std::optional<FairWork> FairPool::Take(bool small_only) {
  const size_t users = queues_.size();
  auto at = queues_.upper_bound(last_user_);
  for (size_t asked = 0; asked < users; ++asked) {
    if (at == queues_.end()) at = queues_.begin();
    const auto mine = at++;
    std::optional<FairWork> work = TakeOf(mine->second, small_only);
    if (mine->second.empty()) queues_.erase(mine);
    if (!work) continue;
    last_user_ = work->user;
    if (!work->key.empty()) running_keys_.insert(work->key);
    return work;
  }
  return std::nullopt;
}

std::optional<FairWork> FairPool::TakeOf(Queue& queue, bool small_only) {
  for (auto at = queue.begin(); at != queue.end();) {
    FairWork& first = at->second;
    const bool abandoned = first.abandoned != nullptr && first.abandoned->load();
    const bool may_run = (first.small || !small_only) && !running_keys_.contains(first.key);
    if (!abandoned && !may_run) {
      ++at;
      continue;
    }
    std::optional<FairWork> work = std::move(first);
    at = queue.erase(at);
    --waiting_;
    if (!abandoned) return work;
  }
  return std::nullopt;
}

}  // namespace snug::server

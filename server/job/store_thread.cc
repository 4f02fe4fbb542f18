#include "server/job/store_thread.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/synchronization/notification.h"

namespace snug::server {

StoreThread::StoreThread(Database& database, CommitBatch commit)
    : database_(database), commit_(std::move(commit)), thread_([this] { Loop(); }) {}

StoreThread::~StoreThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void StoreThread::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  blocking_ += task.blocks;
  tasks_.push_back(std::move(task));
}

absl::Status StoreThread::PostAndWait(Task task) {
  absl::Notification ended;
  absl::Status status;
  task.blocks = true;
  task.done = [&](absl::Status result) {
    status = std::move(result);
    ended.Notify();
  };
  Post(std::move(task));
  ended.WaitForNotification();
  return status;
}

std::vector<StoreThread::Task> StoreThread::Take() {
  absl::MutexLock lock(&mutex_);
  const auto something = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !tasks_.empty();
  };
  const auto enough = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || blocking_ > 0 || tasks_.size() >= kMaxBatch;
  };
  const bool idle = !mutex_.AwaitWithTimeout(absl::Condition(&something), kWaitForMore);
  if (idle) mutex_.Await(absl::Condition(&something));
  if (!idle && last_changes_ >= kBusyBatch)
    mutex_.AwaitWithTimeout(absl::Condition(&enough), kWaitForMore);
  const auto end = tasks_.begin() + static_cast<std::ptrdiff_t>(std::min(tasks_.size(), kMaxBatch));
  std::vector<Task> taken(std::make_move_iterator(tasks_.begin()), std::make_move_iterator(end));
  tasks_.erase(tasks_.begin(), end);
  for (const Task& task : taken) blocking_ -= task.blocks;
  return taken;
}

void StoreThread::Loop() {
  for (std::vector<Task> tasks = Take(); !tasks.empty(); tasks = Take()) Run(tasks);
}

void StoreThread::Run(std::vector<Task>& tasks) {
  std::vector<Task*> changes;
  for (Task& task : tasks)
    if (!task.reads) changes.push_back(&task);
  last_changes_ = changes.size();
  if (!changes.empty()) {
    std::vector<absl::Status> results = commit_(changes);
    for (size_t i = 0; i < changes.size(); ++i) changes[i]->done(std::move(results[i]));
  }
  for (Task& task : tasks)
    if (task.reads) task.done(task.work(database_));
}

}  // namespace snug::server

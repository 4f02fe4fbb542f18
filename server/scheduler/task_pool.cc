#include "server/scheduler/task_pool.h"

#include <utility>

namespace snug::server {

TaskPool::TaskPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

TaskPool::~TaskPool() { Stop(); }

bool TaskPool::Post(Task task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_ || tasks_.size() >= kMaxInboxTasks) return false;
  tasks_.push_back(std::move(task));
  return true;
}

void TaskPool::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    tasks_.clear();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TaskPool::Loop() {
  while (true) {
    Task task;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !tasks_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (stopping_) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace snug::server

#include "worker/execute/cpu_streams.h"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>

namespace snug::execute {

class CpuStreams::Thread {
 public:
  Thread(int stream, const Task& before_each)
      : before_each_(before_each), thread_([this] { Run(); }) {
    const std::string name = "snug-stream-" + std::to_string(stream);  // At most 15 characters.
    pthread_setname_np(thread_.native_handle(), name.c_str());
  }
  ~Thread() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Issue(Task task) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      tasks_.push(std::move(task));
      ++issued_;
    }
    changed_.notify_all();
  }

  int64_t issued() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return issued_;
  }

  // Until so many have run.
  void Await(int64_t tasks) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= tasks; });
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const Task task = std::move(tasks_.front());
      tasks_.pop();
      lock.unlock();
      if (before_each_) before_each_();
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  const Task& before_each_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<Task> tasks_;
  int64_t issued_ = 0, done_ = 0;
  bool ends_ = false;
  std::thread thread_;  // Last: it uses what stands before it.
};

CpuStreams::CpuStreams(Task before_each) : before_each_(std::move(before_each)) {}

// One may wait for another.
CpuStreams::~CpuStreams() { Synchronize(); }

CpuStreams::Thread& CpuStreams::ThreadOf(int stream) {
  std::unique_ptr<Thread>& thread = threads_[stream];
  if (thread == nullptr) thread = std::make_unique<Thread>(stream, before_each_);
  return *thread;
}

void CpuStreams::Issue(int stream, Task task) {
  if (stream == 0) return task();
  ThreadOf(stream).Issue(std::move(task));
}

void CpuStreams::Record(int event, int stream) {
  Point& point = events_[event] = {};
  if (stream == 0) return;
  point.stream = &ThreadOf(stream);
  point.task = point.stream->issued();
}

void CpuStreams::Wait(int event, int stream) {
  const Point point = events_.at(event);
  if (point.stream == nullptr) return;
  Issue(stream, [point] { point.stream->Await(point.task); });
}

void CpuStreams::Synchronize() {
  for (const auto& [number, thread] : threads_) thread->Await(thread->issued());
  events_.clear();
}

}  // namespace snug::execute

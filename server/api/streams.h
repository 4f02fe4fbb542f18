// Streams that a shutdown must end: each registers itself and is asked to stop when the daemon
// drains.
#ifndef SERVER_API_STREAMS_H_
#define SERVER_API_STREAMS_H_

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace snug::server {

class Stoppable {
 public:
  virtual ~Stoppable() = default;
  virtual void Stop() = 0;  // From any thread; at most one effect.
};

class StreamRegistry {
 public:
  // False: the daemon drains, the stream must end at once.
  bool Add(const std::shared_ptr<Stoppable>& stream) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return false;
    std::erase_if(streams_, [](const std::weak_ptr<Stoppable>& known) { return known.expired(); });
    streams_.push_back(stream);
    return true;
  }

  void StopAll() {
    std::vector<std::weak_ptr<Stoppable>> streams;
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      streams.swap(streams_);
    }
    for (const std::weak_ptr<Stoppable>& weak : streams)
      if (std::shared_ptr<Stoppable> stream = weak.lock()) stream->Stop();
  }

 private:
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<Stoppable>> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_API_STREAMS_H_

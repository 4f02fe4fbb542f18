// Streams that are ended from outside: all of them when the daemon drains, and those of a caller
// who would not be let in any more.
#ifndef SERVER_GRPC_STREAMS_H_
#define SERVER_GRPC_STREAMS_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "server/job/errors.h"

namespace snug::server {

class Stoppable {
 public:
  virtual ~Stoppable() = default;
  // From any thread; the first reason counts.
  virtual void End(absl::Status why) = 0;
};

// Whether who opened a stream would still be let in. UNAUTHENTICATED says why not.
using StillLetIn = std::function<absl::Status()>;

// Called when the client has taken the call back, while the call's context is still there.
using CancelHook = std::function<void()>;

class StreamRegistry {
 public:
  // False: the daemon drains, the stream must end at once.
  bool Add(const std::shared_ptr<Stoppable>& stream, StillLetIn still) {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return false;
    std::erase_if(streams_, [](const Known& known) { return known.stream.expired(); });
    streams_.push_back({stream, std::move(still)});
    return true;
  }

  void StopAll() {
    std::vector<Known> streams;
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      streams.swap(streams_);
    }
    for (const Known& known : streams)
      if (std::shared_ptr<Stoppable> stream = known.stream.lock()) stream->End(Draining());
  }

  // Ends the streams whose callers would not be let in now: a token has expired, or was revoked.
  void Review() {
    std::vector<Known> streams;
    {
      absl::MutexLock lock(&mutex_);
      streams = streams_;
    }
    for (const Known& known : streams) {
      absl::Status let_in = known.still();
      if (let_in.ok()) continue;
      if (std::shared_ptr<Stoppable> stream = known.stream.lock()) stream->End(std::move(let_in));
    }
  }

 private:
  struct Known {
    std::weak_ptr<Stoppable> stream;
    StillLetIn still;
  };

  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Known> streams_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_GRPC_STREAMS_H_

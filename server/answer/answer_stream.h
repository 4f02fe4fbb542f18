// What one request has been answered so far: filled by the thread that looks after its worker,
// taken by the call that sends it to the client.
#ifndef SERVER_ANSWER_ANSWER_STREAM_H_
#define SERVER_ANSWER_ANSWER_STREAM_H_

#include <deque>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "snug/v1/sample.pb.h"

namespace snug::server {

// A worker that is this far ahead of its client waits.
inline constexpr size_t kMaxChunksAhead = 1024;
// A client that takes nothing for so long gives the worker's bytes back.
inline constexpr absl::Duration kClientPatience = absl::Minutes(5);

class AnswerStream {
 public:
  // Waits for room. False: nobody wants more.
  bool Put(v1::SampleChunk chunk) ABSL_LOCKS_EXCLUDED(mutex_);
  // The last word; what was put before is taken first.
  void End(absl::Status status) ABSL_LOCKS_EXCLUDED(mutex_);
  bool Cancelled() const ABSL_LOCKS_EXCLUDED(mutex_);

  struct Next {
    std::optional<v1::SampleChunk> chunk;
    bool ended = false;  // Well; neither: nothing has come yet.
  };
  absl::StatusOr<Next> Take() ABSL_LOCKS_EXCLUDED(mutex_);
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool MayPut() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return cancelled_ || chunks_.size() < kMaxChunksAhead;
  }

  mutable absl::Mutex mutex_;
  std::deque<v1::SampleChunk> chunks_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace snug::server

#endif  // SERVER_ANSWER_ANSWER_STREAM_H_

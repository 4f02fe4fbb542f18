// Connections over which calls are taken back as fast as they are made (rapid reset,
// CVE-2023-44487). No limit on streams holds them back, as none stays open, and what has begun is
// done all the same: others wait behind thousands of such calls. The connection is closed.
#ifndef SERVER_GRPC_RESET_GUARD_H_
#define SERVER_GRPC_RESET_GUARD_H_

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace snug::server {

struct ResetLimits {
  double burst = 1000;      // Some calls are given up by everybody,
  double per_second = 100;  // and are forgotten.
};

// Connections go by what a call's context says of its peer. Times are by SinceBoot(). For any
// thread.
class ResetGuard {
 public:
  explicit ResetGuard(std::function<void(const std::string& peer)> close, ResetLimits limits = {})
      : limits_(limits), close_(std::move(close)) {}

  // A call has been taken back before it was answered.
  void Count(const std::string& peer, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of how many connections anything is kept.
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    double calls = 0;  // Less those that were forgotten by then:
    absl::Duration at;
  };
  double Left(const Connection& connection, absl::Duration now) const;

  const ResetLimits limits_;
  const std::function<void(const std::string& peer)> close_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_RESET_GUARD_H_

// Connections over which calls are taken back as fast as they are made (rapid reset,
// CVE-2023-44487). No limit on streams holds them back, as none stays open, and what has begun is
// done all the same: others wait behind thousands of such calls. The connection is closed.
#ifndef SERVER_GRPC_RESET_GUARD_H_
#define SERVER_GRPC_RESET_GUARD_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/api/callers.h"

namespace snug::server {

// Some calls are given up by everybody: so many at once, and so many a second beside.
inline constexpr CallRate kResetRate = {.burst = 1000, .per_second = 100};

// Connections go by what a call's context says of its peer. Times are by SinceBoot(). For any
// thread.
class ResetGuard {
 public:
  explicit ResetGuard(std::function<void(const std::string& peer)> close,
                      CallRate rate = kResetRate)
      : rate_(rate), close_(std::move(close)) {}

  // A call has been taken back before it was answered.
  void Count(const std::string& peer, absl::Duration now);
  // Of how many connections anything is kept.
  size_t size() const { return rate_.size(); }

 private:
  RateLimit rate_;
  const std::function<void(const std::string& peer)> close_;
};

}  // namespace snug::server

#endif  // SERVER_GRPC_RESET_GUARD_H_

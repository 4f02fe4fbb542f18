// Connections from the network over which nobody has been let in yet. gRPC of this version puts a
// header together anew with each of its frames, so one that never ends costs the square of its
// bytes in processor time, before its sender has shown anything; and a call that takes some thirty
// bytes of a connection takes some 20 KB of the daemon's memory while it lasts. So a stranger gets
// what a handshake, a first call and some refused ones need, in bytes and in calls, and beyond that
// is closed; his address is refused for a while, unless somebody who was let in has a connection
// from there: of a proxy, or of a house.
#ifndef SERVER_GRPC_STRANGERS_H_
#define SERVER_GRPC_STRANGERS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/callers.h"

namespace snug::server {

struct StrangerLimits {
  // As gRPC begins none of the calls of what it reads at once before all of it is read, this costs
  // up to 250 MB. A larger first message has come, and its caller is known, before a second look.
  int64_t burst_bytes = 256 << 10;
  // Of all together; beyond it each may have burst_of_many.
  int64_t bytes_of_all = 1 << 20, burst_of_many = 32 << 10;
  int64_t bytes_per_second = 4 << 10;  // As who asks after the daemon's health goes on sending.
  CallRate calls = {.burst = 1000, .per_second = 10};
  absl::Duration refusal = absl::Minutes(1);
};

// Times are by SinceBoot().
class Strangers {
 public:
  explicit Strangers(StrangerLimits limits = {}) : limits_(limits), calls_(limits.calls) {}

  // A connection that has been accepted, of which its owner tells nothing more: whether it is still
  // there is asked of its descriptor. False: its address is refused.
  bool Admit(int fd, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Somebody has been let in over the connection, by what a call's context says of it:
  // ipv4:127.0.0.1:4711, ipv6:%5B::1%5D:4711.
  void Acquaint(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // A call has been made over the connection, and its caller was not let in, or not asked who he
  // is. Closes a stranger's when there are too many of them.
  void CountCall(absl::string_view peer, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Ends the connection, whether or not somebody was let in over it.
  void Close(absl::string_view peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Closes those that have sent too much at two looks: the first call may be on its way at one.
  void Review(absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);

  // Whether there is any over which nobody has been let in.
  bool any() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Peer {
    int fd = -1;
    std::string address, place;  // Without its port, and with it.
    bool known = false;          // Somebody was let in: no stranger any more.
    int64_t received = 0;        // As of the last look.
    int64_t level = 0;           // Of that, less what he may send as time goes by.
    bool over = false;           // It was too much at the last look.
    bool closed = false;         // It was closed for its calls.
  };

  // Whether the connection is still there; then its level is known.
  static bool Measure(uint64_t socket, Peer& peer, int64_t allowed);
  // Whether he may go on.
  bool Judge(uint64_t socket, Peer& peer, int64_t burst, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Forgets the others.
  template <typename Stays>
  void Keep(const Stays& stays) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Closes the connection, and refuses its address from now on.
  void Refuse(uint64_t socket, const Peer& peer, absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StrangerLimits limits_;
  RateLimit calls_;  // By the connections' places.
  mutable absl::Mutex mutex_;
  std::map<uint64_t, Peer> peers_ ABSL_GUARDED_BY(mutex_);  // By their sockets.
  size_t strangers_ ABSL_GUARDED_BY(mutex_) = 0;            // Of these.
  std::map<std::string, absl::Duration> refused_until_ ABSL_GUARDED_BY(mutex_);
  absl::Duration reviewed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_GRPC_STRANGERS_H_

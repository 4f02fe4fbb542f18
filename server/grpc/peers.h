// Who is at the other end of each connection. gRPC of this version does not say; it names a
// connection that it was given as a descriptor "fd:N". So each gets a number of its own, far above
// those that the process uses otherwise, and the numbers go round: a late call of a connection that
// has closed cannot be taken for one of the next.
#ifndef SERVER_GRPC_PEERS_H_
#define SERVER_GRPC_PEERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/job/principal.h"

namespace snug::server {

class Peers {
 public:
  Peers();

  // Takes the connection over; gives the descriptor that gRPC gets for it. -1: it was closed, as
  // nobody could say whose it is, or there was no number.
  int Adopt(int fd) ABSL_LOCKS_EXCLUDED(mutex_);

  // By what a call's context says; nothing for what is no connection of ours.
  std::optional<Principal> Find(absl::string_view peer) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends that connection.
  void Close(absl::string_view peer) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  int first_ = 0, end_ = 0;  // Of the numbers.
  mutable absl::Mutex mutex_;
  int next_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Peer {
    Principal principal;
    uint64_t socket = 0;
  };
  std::map<int, Peer> peers_ ABSL_GUARDED_BY(mutex_);  // By number; some have gone.
};

}  // namespace snug::server

#endif  // SERVER_GRPC_PEERS_H_

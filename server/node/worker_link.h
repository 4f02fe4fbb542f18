// What workers of a node say, and what is said to them. LinkServer is the socket of this machine;
// another node may carry the same messages in its own way.
#ifndef SERVER_NODE_WORKER_LINK_H_
#define SERVER_NODE_WORKER_LINK_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

class WorkerLink {
 public:
  using ConnectionId = uint64_t;  // Never reused, never 0.
  using Events = std::vector<v1::WorkerEvent>;

  // Called on a thread of the link's own: must not block.
  struct Handlers {
    // Something waits to be taken; said again only after it was.
    std::function<void(ConnectionId)> on_events;
    // With what nobody has taken.
    std::function<void(ConnectionId, const absl::Status& why, Events rest)> on_closed;
  };

  // Nothing is called any more once it has returned.
  virtual ~WorkerLink() = default;

  virtual Events Take(ConnectionId id) = 0;
  // Its Hello was right: larger messages and silence are its right from now on.
  virtual void Welcome(ConnectionId id) = 0;
  virtual void Send(ConnectionId id, const v1::WorkerCommand& command) = 0;
  // After what was sent before has gone out.
  virtual void Close(ConnectionId id) = 0;
};

}  // namespace snug::server

#endif  // SERVER_NODE_WORKER_LINK_H_

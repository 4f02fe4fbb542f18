// The node's end of the worker link: accepts workers on <state>/link.sock and turns bytes into
// messages and back.
//
// One thread polls all connections. It knows no attempts: who a connection belongs to, and whether
// what it says is welcome, is decided by whoever receives the events. A connection that sends what
// is no message is closed.
#ifndef SERVER_NODE_LINK_SERVER_H_
#define SERVER_NODE_LINK_SERVER_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/node/framing.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

inline constexpr size_t kMaxLinkConnections = 256;
inline constexpr size_t kMaxUnsentBytes =
    64 << 10;  // Commands are tiny: a worker that takes none is stuck.

class LinkServer {
 public:
  using ConnectionId = uint64_t;  // Never reused.

  // Called on the link thread: must not block.
  struct Handlers {
    std::function<void(ConnectionId, v1::WorkerEvent)> on_event;
    std::function<void(ConnectionId, const absl::Status& why)> on_closed;
  };

  static absl::StatusOr<std::unique_ptr<LinkServer>> Start(const std::string& path,
                                                           Handlers handlers);
  ~LinkServer();

  void Send(ConnectionId id, const v1::WorkerCommand& command) ABSL_LOCKS_EXCLUDED(mutex_);
  // After what was sent before has gone out.
  void Close(ConnectionId id) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    int fd = -1;
    FrameReader reader;
    std::string unsent;
    bool closing = false;
  };

  LinkServer(int listener, int wake, Handlers handlers);
  void Loop();
  void Wake();
  void Accept() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<pollfd> PollSet(std::vector<ConnectionId>& ids) ABSL_LOCKS_EXCLUDED(mutex_);
  void Serve(ConnectionId id, short ready) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Read(ConnectionId id, int fd) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Write(ConnectionId id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(ConnectionId id, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const int listener_;
  const int wake_;  // eventfd
  const Handlers handlers_;
  std::atomic<bool> stopping_{false};
  absl::Mutex mutex_;
  std::map<ConnectionId, Connection> connections_ ABSL_GUARDED_BY(mutex_);
  ConnectionId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_NODE_LINK_SERVER_H_

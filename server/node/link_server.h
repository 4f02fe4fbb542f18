// The node's end of the worker link: accepts workers on <state>/link.sock and turns bytes into
// messages and back.
//
// One thread polls all connections. It knows no attempts: who a connection belongs to, and whether
// what it says is welcome, is decided by whoever takes the events. What any of them can cost is
// bounded: it must say Hello soon, in a small message; it is read no faster than
// kMaxEventsPerSecond; what nobody has taken is coalesced; and where connections run out, the
// oldest that has not been welcomed makes room. A connection that sends what is no message is
// closed.
#ifndef SERVER_NODE_LINK_SERVER_H_
#define SERVER_NODE_LINK_SERVER_H_

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/node/framing.h"
#include "server/node/link_mailbox.h"
#include "server/node/worker_link.h"
#include "snug/v1/worker.pb.h"

namespace snug::server {

struct LinkLimits {
  size_t connections = 256;  // Of them welcomed or not.
  size_t strangers = 64;     // That have not been welcomed.
  // A worker says Hello as soon as it has dialled.
  absl::Duration hello = absl::Seconds(10);
  // Between the beginning and the end of one message.
  absl::Duration message = absl::Seconds(30);
  // A worker that takes steps of a millisecond is shown well enough with these.
  double events_per_second = 500.0;
  // An order with its plan has a few KiB, at most kMaxFrameBytes: one that takes none hangs.
  size_t unsent_bytes = 2 * kMaxFrameBytes;
};

class LinkServer : public WorkerLink {
 public:
  static absl::StatusOr<std::unique_ptr<LinkServer>> Start(const std::string& path,
                                                           Handlers handlers,
                                                           LinkLimits limits = {});
  ~LinkServer() override;

  Events Take(ConnectionId id) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Welcome(ConnectionId id) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Send(ConnectionId id, const v1::WorkerCommand& command) override ABSL_LOCKS_EXCLUDED(mutex_);
  void Close(ConnectionId id) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Connection {
    int fd = -1;
    FrameReader reader{kMaxFirstFrameBytes};
    std::string unsent;
    bool closing = false;
    bool welcome = false;
    bool said_hello = false;
    LinkMailbox mailbox;
    bool announced = false;     // on_events was called and nothing taken since.
    absl::Duration accepted;    // By SinceBoot().
    absl::Duration part_began;  // Of a message that has not ended.
    absl::Duration read_again;  // Not read before: it has said too much.
  };
  using Connections = std::map<ConnectionId, Connection>;  // In the order in which they came.

  LinkServer(int listener, int wake, Handlers handlers, LinkLimits limits);
  void Loop();
  void Wake();
  void Accept() ABSL_LOCKS_EXCLUDED(mutex_);
  ConnectionId OldestStranger() const ABSL_LOCKS_EXCLUDED(mutex_);
  void DropLate() ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<pollfd> PollSet(std::vector<ConnectionId>& ids) ABSL_LOCKS_EXCLUDED(mutex_);
  void Serve(ConnectionId id, short ready) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Read(ConnectionId id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<int> TakeIn(Connection& connection, absl::string_view bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(ConnectionId id) ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(ConnectionId id, const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const int listener_;
  const int wake_;  // eventfd
  const Handlers handlers_;
  const LinkLimits limits_;
  std::atomic<bool> stopping_{false};
  absl::Duration accept_again_;  // Not before: there were no descriptors.
  mutable absl::Mutex mutex_;
  Connections connections_ ABSL_GUARDED_BY(mutex_);
  ConnectionId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_NODE_LINK_SERVER_H_

// What a worker has said and nobody has taken yet. A worker that says more than anybody reads costs
// no more than this: of its steps and heartbeats the last one counts, of its checkpoints the last
// few (older ones are found on the disk when the attempt ends).
#ifndef SERVER_NODE_LINK_MAILBOX_H_
#define SERVER_NODE_LINK_MAILBOX_H_

#include <deque>
#include <optional>
#include <vector>

#include "snug/v1/worker.pb.h"

namespace snug::server {

class LinkMailbox {
 public:
  static constexpr size_t kMaxCheckpoints = 16;

  void Put(v1::WorkerEvent event);

  // Hello first, then checkpoints, where it stands, under which plan, that it needs a smaller one,
  // that it lives, how it ended.
  std::vector<v1::WorkerEvent> Take();

 private:
  std::optional<v1::WorkerEvent> hello_, step_, plan_changed_, shortage_, heartbeat_, finished_;
  std::deque<v1::WorkerEvent> checkpoints_;
};

}  // namespace snug::server

#endif  // SERVER_NODE_LINK_MAILBOX_H_

// WatchJob: the job as it is, then each change, until it has ended.
#ifndef SERVER_GRPC_WATCH_CALL_H_
#define SERVER_GRPC_WATCH_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "server/grpc/streams.h"
#include "server/job/job_index.h"

namespace snug::server {

// Gives the job as it is, and has the watcher told of each change from then on.
using BeginWatch =
    std::function<absl::StatusOr<JobPtr>(const std::shared_ptr<JobWatcher>& watcher)>;

// A client that reads slowly gets the latest state and misses those between: at most one message is
// on its way, one waits.
grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchCall(const BeginWatch& begin,
                                                      StreamRegistry& streams, StillLetIn still,
                                                      CancelHook on_cancel);

}  // namespace snug::server

#endif  // SERVER_GRPC_WATCH_CALL_H_

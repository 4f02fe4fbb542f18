// WatchJob: the job as it is, then each change, until it has ended.
#ifndef SERVER_API_WATCH_H_
#define SERVER_API_WATCH_H_

#include <grpcpp/support/server_callback.h>

#include "server/api/streams.h"
#include "server/job/job_index.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// A client that reads slowly gets the latest state and misses those between: at most one message is
// on its way, one waits.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartWatch(
    const absl::StatusOr<v1::WatchJobRequest>& request, JobIndex& index, StreamRegistry& streams);

}  // namespace snug::server

#endif  // SERVER_API_WATCH_H_

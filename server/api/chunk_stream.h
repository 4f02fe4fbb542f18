// A stream of chunks read from files: logs and downloads. Reading happens on a pool, one chunk at a
// time.
#ifndef SERVER_API_CHUNK_STREAM_H_
#define SERVER_API_CHUNK_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/streams.h"
#include "server/scheduler/task_pool.h"

namespace snug::server {

inline constexpr size_t kChunkBytes = 256 << 10;

// What comes next: a chunk; or nothing yet, ask again after `wait`; or the end.
struct NextChunk {
  enum Kind { kChunk, kWait, kEnd };
  Kind kind = kEnd;
  grpc::ByteBuffer chunk;
  absl::Duration wait = absl::Milliseconds(200);  // A log is followed by people.
};

// Called on the pool, never twice at once.
using ChunkSource = std::function<absl::StatusOr<NextChunk>()>;

grpc::ServerWriteReactor<grpc::ByteBuffer>* StreamChunks(absl::StatusOr<ChunkSource> source,
                                                         TaskPool& pool, StreamRegistry& streams);

}  // namespace snug::server

#endif  // SERVER_API_CHUNK_STREAM_H_

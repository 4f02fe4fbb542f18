// Sources of what users read from a job's folders: its log, and its output.
#ifndef SERVER_API_FILES_H_
#define SERVER_API_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/chunk_stream.h"
#include "server/job/job_index.h"

namespace snug::server {

// worker.log of every attempt, one after another; with `follow` until the job has ended.
absl::StatusOr<ChunkSource> LogSource(const JobIndex& index, const std::string& state_dir,
                                      const v1::GetJobLogsRequest& request);

// The files of a succeeded job's output folder, or of a checkpoint.
absl::StatusOr<ChunkSource> OutputSource(const JobIndex& index, const std::string& state_dir,
                                         const v1::DownloadJobRequest& request);

// Reads folders, so it belongs on a pool.
absl::StatusOr<v1::ListCheckpointsResponse> CheckpointsOf(
    const JobIndex& index, const std::string& state_dir, const v1::ListCheckpointsRequest& request);

}  // namespace snug::server

#endif  // SERVER_API_FILES_H_

// What a job has made: its checkpoints, and the files of its output and of each of them.
#ifndef SERVER_API_ARTIFACTS_H_
#define SERVER_API_ARTIFACTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/message_source.h"
#include "server/api/page_token.h"
#include "server/artifact/file_hashes.h"
#include "server/job/job_index.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// All outlive it. Whatever it does reads folders, so it belongs on a pool.
class Artifacts {
 public:
  Artifacts(const JobIndex& index, std::string state_dir, const PageTokens& tokens)
      : index_(index), state_dir_(std::move(state_dir)), tokens_(tokens) {}

  absl::StatusOr<v1::ListCheckpointsResponse> Checkpoints(
      const v1::ListCheckpointsRequest& request) const;

  // Reads the files of the page whose hashes are wanted and not known yet.
  absl::StatusOr<v1::ListArtifactsResponse> List(const v1::ListArtifactsRequest& request);

  // The files of a job's output folder or of a checkpoint, one of them, or a range of one.
  // INVALID_ARGUMENT: a range of no file. Its first message may be NOT_FOUND: there is no such
  // file; or OUT_OF_RANGE: it has not so many bytes.
  absl::StatusOr<MessageSource<v1::FileChunk>> Source(const v1::DownloadJobRequest& request);

 private:
  template <typename Request>
  absl::StatusOr<std::string> FolderOf(const Request& request) const;

  const JobIndex& index_;
  const std::string state_dir_;
  const PageTokens& tokens_;
  FileHashes hashes_;
};

}  // namespace snug::server

#endif  // SERVER_API_ARTIFACTS_H_

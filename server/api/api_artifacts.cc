// The API's calls about what jobs make.
#include "server/api/artifacts.h"
#include "server/api/calls.h"

namespace snug::server {

void Api::ListCheckpoints(const Principal& who, const v1::ListCheckpointsRequest& request,
                          Answer<v1::ListCheckpointsResponse> answer) {
  OnPool(who, request, std::move(answer),
         [this](const auto& call) { return artifacts_.Checkpoints(call.request); });
}

// Hashes whole files at times, so it is no work for the quick threads.
void Api::ListArtifacts(const Principal& who, const v1::ListArtifactsRequest& request,
                        Answer<v1::ListArtifactsResponse> answer) {
  OnChecks(who, request, std::move(answer),
           [this](const auto& call) { return artifacts_.List(call.request); });
}

absl::StatusOr<MessageSource<v1::FileChunk>> Api::DownloadJob(
    const Principal& who, const v1::DownloadJobRequest& request) {
  ASSIGN_OR_RETURN(const auto call, Allow(who, request));
  return artifacts_.Source(call.request);
}

}  // namespace snug::server

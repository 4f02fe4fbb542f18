#include "client/artifacts.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/errors.h"
#include "client/pages.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

constexpr absl::Duration kHashing = absl::Minutes(30);  // Of what the daemon has not hashed yet.
constexpr absl::Duration kAway =
    absl::Seconds(30);  // Of a daemon that restarts, or is called too often.

// What one call gives of a file that was begun, and `done` bytes are there.
struct Piece {
  grpc::Status status;  // Of the daemon.
  absl::Status kept;    // On this side, which comes first.
  int64_t bytes = 0;
  std::string sha256;
};

Piece Receive(Connection& connection, const v1::Artifact& artifact, int64_t done,
              OutputFolder& folder) {
  v1::DownloadJobRequest request;
  request.set_id(artifact.name());
  request.set_offset(done);
  grpc::ClientContext context;
  const auto reader = connection.stub().DownloadJob(&context, request);
  Piece piece;
  v1::FileChunk chunk;
  while (piece.kept.ok() && reader->Read(&chunk)) {
    if (!chunk.path().empty() && chunk.file_bytes() != artifact.bytes())
      piece.kept = absl::DataLossError(absl::StrCat(artifact.path(), " has ", chunk.file_bytes(),
                                                    " bytes now, and was listed with ",
                                                    artifact.bytes(), "; try again"));
    if (piece.kept.ok()) piece.kept = folder.Append(chunk.content());
    piece.bytes += static_cast<int64_t>(chunk.content().size());
    if (!chunk.sha256().empty()) piece.sha256 = chunk.sha256();
  }
  if (!piece.kept.ok()) context.TryCancel();
  piece.status = reader->Finish();
  return piece;
}

// From `done` bytes on.
absl::Status FetchRest(Connection& connection, const v1::Artifact& artifact, int64_t done,
                       OutputFolder& folder) {
  std::string sha256 = artifact.sha256();
  Backoff backoff(kAway);
  while (done < artifact.bytes()) {
    const Piece piece = Receive(connection, artifact, done, folder);
    RETURN_IF_ERROR(piece.kept);
    done += piece.bytes;
    if (piece.bytes > 0) backoff.Reset();
    if (piece.status.ok()) {
      sha256 = piece.sha256;
      break;
    }
    const bool too_fast = piece.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if ((!IsLost(piece.status) && !too_fast) || !backoff.Wait()) return ToStatus(piece.status);
  }
  if (sha256 != artifact.sha256())
    return absl::DataLossError(
        absl::StrCat(artifact.path(), " has changed since it was listed; try again"));
  return folder.Check(sha256);
}

absl::Status FetchOne(Connection& connection, const v1::Artifact& artifact, OutputFolder& folder) {
  ASSIGN_OR_RETURN(const int64_t there, folder.Begin(artifact.path(), artifact.bytes()));
  const absl::Status fetched = FetchRest(connection, artifact, there, folder);
  if (!absl::IsDataLoss(fetched) || there == 0 || folder.filling()) return fetched;
  // What was there from another time was not of this file: it has gone, and all is fetched.
  ASSIGN_OR_RETURN(const int64_t none, folder.Begin(artifact.path(), artifact.bytes()));
  return FetchRest(connection, artifact, none, folder);
}

}  // namespace

absl::StatusOr<std::vector<v1::Artifact>> ArtifactsOf(Connection& connection,
                                                      const CommandLine& line) {
  v1::ListArtifactsRequest request;
  request.set_id(line.job);
  if (line.checkpoint) request.set_checkpoint_step(*line.checkpoint);
  ASSIGN_OR_RETURN(
      const v1::ListArtifactsResponse list,
      AllPages(connection, &v1::FineTuning::Stub::ListArtifacts, std::move(request), kHashing));
  for (const v1::Artifact& artifact : list.artifacts())
    RETURN_IF_ERROR(CheckRelativePath(artifact.path()));
  return std::vector<v1::Artifact>(list.artifacts().begin(), list.artifacts().end());
}

absl::Status Fetch(Connection& connection, const std::vector<v1::Artifact>& artifacts,
                   OutputFolder& folder) {
  std::vector<std::string> paths;
  for (const v1::Artifact& artifact : artifacts) paths.push_back(artifact.path());
  RETURN_IF_ERROR(folder.KeepOnly(paths));
  for (const v1::Artifact& artifact : artifacts)
    RETURN_IF_ERROR(FetchOne(connection, artifact, folder));
  return absl::OkStatus();
}

}  // namespace snug::client

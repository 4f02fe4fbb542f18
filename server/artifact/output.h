// The output folder of a finished attempt: verified once, before the job may be called SUCCEEDED.
#ifndef SERVER_ARTIFACT_OUTPUT_H_
#define SERVER_ARTIFACT_OUTPUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/sha256.h"
#include "server/job/records.h"
#include "snug/v1/worker.pb.h"
#include "worker/program/program.h"

namespace snug::server {

struct OutputFile {
  std::string path;  // Relative to the folder.
  int64_t bytes = 0;
};

// Regular files only, sorted by path. An error for anything else: a link could lead out of the
// folder.
absl::StatusOr<std::vector<OutputFile>> ListOutput(const std::string& dir);

// Bytes and hash of all files in `dir`; `watch`: of each of them.
absl::StatusOr<ArtifactRecord> HashOutput(const std::string& dir, const HashWatch& watch = nullptr);

// What an attempt's result claims: <attempt_dir>/output holds the adapter (or the model) with the
// program's keys and shapes, and metrics.jsonl. The record has the hash of all of it.
absl::StatusOr<ArtifactRecord> VerifyOutput(const std::string& attempt_dir,
                                            const v1::WorkerResult& result,
                                            const program::Program& program, bool adapter);

}  // namespace snug::server

#endif  // SERVER_ARTIFACT_OUTPUT_H_

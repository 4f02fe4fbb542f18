// Checkpoints on the disk: found by their names, believed by their manifests.
//
// A checkpoint is a folder step-<step>.e<epoch> that a worker renamed into place; MANIFEST.json in
// it names every file with its size and SHA-256. A folder whose name ends in .tmp was never
// finished. Nothing is repaired here, and nothing deleted.
#ifndef SERVER_ARTIFACT_CHECKPOINTS_H_
#define SERVER_ARTIFACT_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/sha256.h"
#include "server/job/records.h"

namespace snug::server {

// The reason of an error that says that a job's checkpoints are there, and none of them is good.
inline constexpr const char* kCheckpointsDamaged = "CHECKPOINTS_DAMAGED";

struct CheckpointName {
  int64_t step = 0;
  int epoch = 0;
};

// "step-000123.e4"
std::optional<CheckpointName> ParseCheckpointName(const std::string& name);

// Folders with a checkpoint's name, newest first: by step, then by epoch. None where there is no
// such folder.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& checkpoints_dir);

// Reads every byte of it. Errors name the file that is missing, of the wrong size or of another
// content. `watch`: of each file.
absl::StatusOr<CheckpointRecord> VerifyCheckpoint(const std::string& job, const std::string& dir,
                                                  const HashWatch& watch = nullptr);

struct CheckpointScan {
  std::vector<CheckpointRecord>
      records;  // What was looked at: the newest good one, and damaged ones above it.
  std::optional<CheckpointRecord> newest;  // To resume from.
};

// From the newest downwards until one is good. DATA_LOSS: there are checkpoints, and all are
// damaged. Another error: they cannot be read now.
absl::StatusOr<CheckpointScan> FindNewest(const std::string& job,
                                          const std::string& checkpoints_dir);

// The folder of that step's, of the newest attempt that has one; nothing in it is read. NOT_FOUND:
// there is none.
absl::StatusOr<std::string> FolderAt(const std::string& job, const std::string& checkpoints_dir,
                                     int64_t step);

// The good one of that step. NOT_FOUND: there is none; DATA_LOSS: it is damaged.
absl::StatusOr<CheckpointRecord> FindAt(const std::string& job, const std::string& checkpoints_dir,
                                        int64_t step);

}  // namespace snug::server

#endif  // SERVER_ARTIFACT_CHECKPOINTS_H_

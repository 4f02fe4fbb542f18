// MANIFEST.json of a checkpoint, read and held to the folder's name.
#ifndef SERVER_ARTIFACT_MANIFEST_H_
#define SERVER_ARTIFACT_MANIFEST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/artifact/checkpoints.h"

namespace snug::server {

struct CheckpointManifest {
  CheckpointName name;
  std::string text;
  nlohmann::json json;  // An object, whose "files" is one.
};

// Of the step and the epoch that the folder's name says, else DATA_LOSS. NOT_FOUND: it has none.
// Any other error says that it cannot be read now.
absl::StatusOr<CheckpointManifest> ReadCheckpointManifest(const std::string& dir);

// -1: there is no such number.
int64_t IntegerIn(const nlohmann::json& object, const char* key);

}  // namespace snug::server

#endif  // SERVER_ARTIFACT_MANIFEST_H_

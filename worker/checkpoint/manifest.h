// MANIFEST.json of a checkpoint: the state of the run, and size and hash of each file beside it.
// Believed only when the text is, byte for byte, one that this program wrote.
#ifndef WORKER_CHECKPOINT_MANIFEST_H_
#define WORKER_CHECKPOINT_MANIFEST_H_

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/new_file.h"

namespace snug::checkpoint {

inline constexpr char kManifestFile[] = "MANIFEST.json";
inline constexpr char kWeightsFile[] = "weights.safetensors";
// In place of that one where the folder is a model's.
inline constexpr char kModelFile[] = "model.safetensors";
inline constexpr char kOptimizerFile[] = "optimizer.safetensors";

struct Manifest {
  RunState state;
  std::map<std::string, FileDigest> files;
};

absl::StatusOr<std::string> ManifestText(const Manifest& manifest);

// DATA_LOSS for anything but what ManifestText gave; `where` names the file.
absl::StatusOr<Manifest> ParseManifest(std::string_view text, const std::string& where);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_MANIFEST_H_

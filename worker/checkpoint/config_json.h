// The config.json of an exported model.
#ifndef WORKER_CHECKPOINT_CONFIG_JSON_H_
#define WORKER_CHECKPOINT_CONFIG_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"

namespace snug::checkpoint {

struct ConfigChanges {
  std::string dtype = {};  // Of the weights beside it: "F32" or "BF16"; empty: as the base's.
  int64_t vocabulary = 0;  // 0: as the base's.
};

// The base's, member by member in its order, with these changes. The dtype stands under the name
// that the file uses: torch_dtype before transformers 5, dtype since.
absl::StatusOr<nlohmann::ordered_json> ConfigOfExport(const std::string& model_dir,
                                                      const ConfigChanges& changes);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_CONFIG_JSON_H_

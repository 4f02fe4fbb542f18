// The config.json of an exported model.
#ifndef WORKER_CHECKPOINT_CONFIG_JSON_H_
#define WORKER_CHECKPOINT_CONFIG_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/model_config.h"

namespace snug::checkpoint {

struct ConfigChanges {
  std::string dtype = {};  // Of the weights beside it: "F32" or "BF16"; empty: as the base's.
  int64_t vocabulary = 0;  // 0: as the base's.
  // Of a classification head: its class, and how many classes there are. Names where they are
  // known; else the base's, where it has as many, else LABEL_0 and so on.
  std::string architecture = {};  // Empty: as the base's.
  int64_t labels = 0;
  std::string problem = {};  // problem_type; empty: the head knows none.
  std::vector<std::string> label_names = {};
  nlohmann::ordered_json members = nlohmann::ordered_json::object();  // In place of the base's.
};

// Of a model that was trained, against its base's config.json.
ConfigChanges ChangesOf(const program::ModelConfig& config,
                        const std::vector<std::string>& label_names);

// The base's, member by member in its order, with these changes. The dtype stands under the name
// that the file uses: torch_dtype before transformers 5, dtype since.
absl::StatusOr<nlohmann::ordered_json> ConfigOfExport(const std::string& model_dir,
                                                      const ConfigChanges& changes);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_CONFIG_JSON_H_

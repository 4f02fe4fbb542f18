// The loader of an exported reversible model: transformers has no such classes of its own.
#ifndef WORKER_CHECKPOINT_REVERSIBLE_LOADER_H_
#define WORKER_CHECKPOINT_REVERSIBLE_LOADER_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "worker/program/model_config.h"

namespace snug::checkpoint {

// Its model_type in config.json: "llama", "reversible_llama".
std::string TypeInFiles(const program::ModelConfig& config);

// Of its config.json, those that name the classes of the loader: who does not load it then fails by
// name.
nlohmann::ordered_json ReversibleMembers(const program::ModelConfig& config);

// modeling_reversible.py in `folder`, which transformers runs with trust_remote_code.
absl::Status WriteReversibleLoader(const program::ModelConfig& config, const std::string& folder);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_REVERSIBLE_LOADER_H_

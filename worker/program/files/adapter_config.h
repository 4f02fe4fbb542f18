// An adapter's folder, as PEFT writes it: adapter_config.json, and the keys and shapes of
// adapter_model.safetensors. Reads no tensor.
#ifndef WORKER_PROGRAM_FILES_ADAPTER_CONFIG_H_
#define WORKER_PROGRAM_FILES_ADAPTER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/lora_config.h"
#include "worker/program/program.h"

namespace snug::program {

struct AdapterConfig {
  LoraConfig lora;
  bool names_targets = true;  // target_modules is there.
  bool ties_weights = false;  // ensure_weight_tying
};

// Errors name the file and the field: one that is missing or wrong, and every field that changes
// what an adapter computes and is not computed here.
absl::StatusOr<AdapterConfig> ReadAdapterConfig(const std::string& path);
// The same of its text; `path` names it in errors.
absl::StatusOr<AdapterConfig> ParseAdapterConfig(const std::string& text, const std::string& path);

// The tensors of an adapter that `program`, which has its rank and modules, starts from. Errors: as
// CheckAdapter, and a tied matrix that PEFT trained as two (ensure_weight_tying: false), of which
// one would be dropped here.
absl::StatusOr<TensorIndex> ReadAdapterIndex(const Program& program, const std::string& folder);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_ADAPTER_CONFIG_H_

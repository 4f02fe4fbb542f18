// adapter_config.json, as PEFT writes it.
#ifndef WORKER_PROGRAM_ADAPTER_CONFIG_H_
#define WORKER_PROGRAM_ADAPTER_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "worker/program/lora_config.h"

namespace snug::program {

struct AdapterConfig {
  LoraConfig lora;            // Without dropout, which is the training's.
  bool names_targets = true;  // target_modules is there.
  bool ties_weights = false;  // ensure_weight_tying
};

// Errors name the file and the field: one that is missing or wrong, and every field that changes
// what an adapter computes and is not computed here.
absl::StatusOr<AdapterConfig> ReadAdapterConfig(const std::string& path);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ADAPTER_CONFIG_H_

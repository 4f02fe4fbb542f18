// What an adapter's tensors say by their keys and shapes, as PEFT names them.
#ifndef WORKER_PROGRAM_FILES_ADAPTER_CONTENTS_H_
#define WORKER_PROGRAM_FILES_ADAPTER_CONTENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/program/lora_config.h"
#include "worker/program/program.h"

namespace snug::program {

// As in adapter_model.safetensors.
struct AdapterTensor {
  std::string key;
  std::string dtype;
  std::vector<int64_t> shape;
};

// Those that a program trains and exports.
std::vector<AdapterTensor> AdapterTensorsOf(const Program& program);

// What an adapter's tensors are of, by the paths of modules: model.layers.0.self_attn.q_proj, ...
struct AdapterContents {
  std::map<std::string, int64_t> adapted;  // And their ranks.
  std::vector<std::string> saved;          // Trained whole.
  int64_t largest_rank() const;
};

// Errors: a tensor that is no fp32 lora_A or lora_B of PEFT's naming and no weight of a module, a
// half without its other half, halves of two ranks, nothing adapted.
absl::StatusOr<AdapterContents> ContentsOf(const std::vector<AdapterTensor>& adapter);

// What PEFT must look for: the names as the user gave them, sorted; for all-linear the last parts
// of the adapted modules' paths, which is what PEFT itself saves for it.
std::vector<std::string> TargetModules(const LoraConfig& lora, const AdapterContents& contents);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_ADAPTER_CONTENTS_H_

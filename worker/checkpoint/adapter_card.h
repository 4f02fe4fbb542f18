// The two texts of a PEFT adapter folder: adapter_config.json, with every field that peft 0.21.2
// writes and in its order, and README.md with the front matter that the Hugging Face hub reads.
#ifndef WORKER_CHECKPOINT_ADAPTER_CARD_H_
#define WORKER_CHECKPOINT_ADAPTER_CARD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/export.h"

namespace snug::checkpoint {

// Paths of the modules that the tensors adapt: model.layers.0.self_attn.q_proj, ... Errors: a
// tensor that is no fp32 lora_A or lora_B of PEFT's naming, one without its other half, a rank that
// is not `rank`.
absl::StatusOr<std::vector<std::string>> AdaptedModules(const std::vector<TensorBytes>& adapter,
                                                        int64_t rank);

// What PEFT must look for: the names as the user gave them, sorted; for all-linear the last parts
// of the adapted modules' paths, which is what PEFT itself saves for it.
std::vector<std::string> TargetModules(const program::LoraConfig& lora,
                                       const std::vector<std::string>& adapted);

// Whether PEFT applies an adapter with these targets to the module: the whole path, or its end.
bool IsTargeted(const std::string& module, const std::vector<std::string>& targets);

absl::StatusOr<std::string> AdapterConfigText(const ExportOptions& options,
                                              const std::vector<std::string>& targets);

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const std::vector<std::string>& targets,
                                              size_t adapted_modules);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_ADAPTER_CARD_H_

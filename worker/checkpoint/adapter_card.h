// The two texts of a PEFT adapter folder: adapter_config.json, with every field that peft 0.21.2
// writes and in its order, and README.md with the front matter that the Hugging Face hub reads.
#ifndef WORKER_CHECKPOINT_ADAPTER_CARD_H_
#define WORKER_CHECKPOINT_ADAPTER_CARD_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/checkpoint/compatibility.h"
#include "worker/checkpoint/export.h"

namespace snug::checkpoint {

// What an adapter's tensors are of, by the paths of modules: model.layers.0.self_attn.q_proj, ...
struct AdapterContents {
  std::map<std::string, int64_t> adapted;  // And their ranks.
  std::vector<std::string> saved;          // Trained whole.
  int64_t largest_rank() const;
};

// Errors: a tensor that is no fp32 lora_A or lora_B of PEFT's naming and no weight of a module, a
// half without its other half, halves of two ranks.
absl::StatusOr<AdapterContents> ContentsOf(const std::vector<TensorBytes>& adapter);

// What PEFT must look for: the names as the user gave them, sorted; for all-linear the last parts
// of the adapted modules' paths, which is what PEFT itself saves for it.
std::vector<std::string> TargetModules(const program::LoraConfig& lora,
                                       const AdapterContents& contents);

// `tied`: the base's head is its embedding.
absl::StatusOr<std::string> AdapterConfigText(const ExportOptions& options,
                                              const AdapterContents& contents, bool tied);

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const AdapterContents& contents,
                                              const std::vector<ReaderReport>& readers);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_ADAPTER_CARD_H_

// The base with an adapter merged into it, W + scale B A, as a Hugging Face model folder: computed
// in fp32 from the base's own files, some rows at a time, and rounded once to the base's number
// type. What was trained whole replaces the base's.
//
// The host computes it, in the arena, which nobody uses by then. Where it does not read the
// device's memory it takes kMergeRoomBytes of its own instead, and copies there what it adds: of an
// adapter of rank r to rows of W columns, (kMergeRoomBytes / 8 W + W) r numbers of fp32 at most.
#ifndef WORKER_TRAIN_MERGED_EXPORT_H_
#define WORKER_TRAIN_MERGED_EXPORT_H_

#include <cstdint>
#include <string>

#include <string>
#include <vector>
#include "absl/status/status.h"

#include "absl/status/statusor.h"
#include "worker/execute/slot_memory.h"
#include "worker/program/program.h"
#include "worker/train/attempt.h"
#include "worker/weights/parameters.h"

namespace snug::train {

struct MergeRequest {
  std::string model_dir;  // The base.
  std::string data_dir;   // The prepared dataset, whose chat template goes along; may be empty.
  std::vector<std::string> label_names = {};  // Of a classification, where they are known.
  const program::Program* program = nullptr;
  const weights::Parameters* parameters = nullptr;
  // To work in: a row of the widest module in fp32, twice, at least.
  const execute::ArenaMemory* arena = nullptr;
  int64_t max_shard_bytes = 0;  // 0: as the writer's.
};

// 2000 rows of 4096 columns at a time: enough for products at full speed.
inline constexpr int64_t kMergeRoomBytes = 64 << 20;

// Into a new folder, synced. Its config.json is the base's, but for added tokens and a new head.
// OUT_OF_RANGE: a merged weight is not finite.
absl::Status ExportMerged(const std::string& folder, const MergeRequest& request);

// An attempt that can evaluate such a folder on the data of `attempt`, and train nothing. It takes
// less than `attempt` does: the same base, without an adapter, its gradients and its moments.
absl::StatusOr<AttemptOptions> EvaluationOf(const std::string& folder,
                                            const AttemptOptions& attempt);

}  // namespace snug::train

#endif  // WORKER_TRAIN_MERGED_EXPORT_H_

// A model's tensors as a Hugging Face folder has them, written one after the other without any of
// them being in memory as a whole: model.safetensors, or, above kMaxShardBytes,
// model-00001-of-0000n.safetensors and so on with model.safetensors.index.json.
#ifndef WORKER_CHECKPOINT_MODEL_SHARDS_H_
#define WORKER_CHECKPOINT_MODEL_SHARDS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/tensor_bytes.h"

namespace snug::checkpoint {

inline constexpr int64_t kMaxShardBytes = 5'000'000'000;  // As readers are used to.

// Takes the next bytes of the tensor that is being written.
using TensorSink = std::function<absl::Status(const void* bytes, int64_t count)>;
// Gives all bytes of `tensor` to the sink, in their order.
using TensorSource = std::function<absl::Status(const TensorBytes& tensor, const TensorSink& sink)>;

// Keys, dtypes, shapes and bytes of `tensors`; their data is asked of `source`. Every file is
// synced. OUT_OF_RANGE: an element is NaN or infinite.
absl::Status WriteModelShards(const std::string& folder, const std::vector<TensorBytes>& tensors,
                              const TensorSource& source, int64_t max_shard_bytes = kMaxShardBytes);

// The index of a folder that has all `tensors` in model.safetensors.
absl::Status WriteModelIndex(const std::string& folder, const std::vector<TensorBytes>& tensors);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_MODEL_SHARDS_H_

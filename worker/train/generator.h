// Answers prompts: the prompt runs once through the program, then token after token, each seeing
// the keys and values of all before it. Of a model that reads a source the prompt is that: its
// encoder runs once, beside the first token that the decoder reads. Greedy or drawn (sampling.h),
// on the host. Takes no memory but the arena's, and where the host does not read that, room for the
// logits and their order.
#ifndef WORKER_TRAIN_GENERATOR_H_
#define WORKER_TRAIN_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/execute/executor.h"
#include "worker/execute/slot_memory.h"
#include "worker/program/generation.h"
#include "worker/train/batch_buffers.h"
#include "worker/train/training_options.h"

namespace snug::train {

class Generator {
 public:
  // All arguments must outlive it. The arena has at least layout.bytes.
  Generator(const program::Program& program, const program::GenerationLayout& layout,
            execute::Executor& executor, execute::ArenaMemory& arena, BatchBuffers& buffers);

  struct Question {
    std::span<const int32_t> prompt;
    SampleOptions options;
    std::function<bool(int32_t)> stops;      // Whether the answer ends with this token.
    std::function<double(int64_t)> uniform;  // The draw for its n-th token.
  };
  // The answer's tokens, the one that ended it among them. OutOfRange: a logit is not a number.
  absl::StatusOr<std::vector<int32_t>> Answer(const Question& question);

 private:
  // How much of a document and of its source came before.
  struct Past {
    int64_t tokens = 0, source = 0;
  };
  // Runs tokens that come next, and of a source those that nobody has read; leaves the logits
  // behind the last in logits_.
  absl::Status Run(std::span<const int32_t> ids, std::span<const int32_t> source, const Past& past);
  // The arena's, by block.
  struct Cache {
    std::vector<void*> keys, values;
    int64_t capacity = 0;
    execute::KvCache With(const int64_t* rows) const {
      return {.keys = keys.data(), .values = values.data(), .capacity = capacity, .rows = rows};
    }
  };
  Cache CacheAt(const program::CacheLayout& layout) const;
  // Where the one document's keys are, and how many with the batch's own: for all blocks at once.
  absl::Status UploadSpans(const execute::Batch& batch, execute::KvCache& own,
                           execute::KvCache& sources) const;

  const program::GenerationLayout& layout_;
  const double softcap_;
  execute::Executor& executor_;
  execute::ArenaMemory& arena_;
  BatchBuffers& buffers_;
  const bool reads_source_;
  const int32_t start_token_;  // Of the decoder that reads one.
  const Cache own_, sources_;
  std::span<float> logits_;      // (V) The host's: in the arena or in copied_.
  std::span<int32_t> order_;     // (V) In the same place.
  std::vector<float> copied_;    // (V)
  std::vector<int32_t> sorted_;  // (V)
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_GENERATOR_H_

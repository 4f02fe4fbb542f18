// Answers prompts: the prompt runs once through the program, then token after token, each seeing
// the keys and values of all before it. Greedy or drawn (sampling.h), on the host. Takes no memory
// but the arena's, and where the host does not read that, room for the logits and their order.
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
  // Runs tokens whose first is the `past`-th of the document; leaves the logits behind the last in
  // logits_.
  absl::Status Run(std::span<const int32_t> ids, int64_t past);

  const program::GenerationLayout& layout_;
  const double softcap_;
  execute::Executor& executor_;
  execute::ArenaMemory& arena_;
  BatchBuffers& buffers_;
  std::vector<void*> keys_, values_;
  std::span<float> logits_;      // (V) The host's: in the arena or in copied_.
  std::span<int32_t> order_;     // (V) In the same place.
  std::vector<float> copied_;    // (V)
  std::vector<int32_t> sorted_;  // (V)
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_GENERATOR_H_

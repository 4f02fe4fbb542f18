// Answers prompts with a model that nothing is trained of: the base, an adapter beside it, or a
// checkpoint's weights. Owns all memory of the attempt, in the components of
// program::AnsweringBytes; of a GPU in one block and the arena, as the trainer does.
#ifndef WORKER_TRAIN_ANSWERER_H_
#define WORKER_TRAIN_ANSWERER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/executor.h"
#include "worker/execute/slot_memory.h"
#include "worker/link/answer_link.h"
#include "worker/program/generation.h"
#include "worker/train/attempt.h"
#include "worker/train/batch_buffers.h"
#include "worker/train/prompts.h"
#include "worker/weights/parameters.h"

namespace snug::train {

class Answerer {
 public:
  // ResourceExhausted when the attempt's cap is too small for it; Internal when what it holds is
  // not, to the byte, what was promised for it.
  static absl::StatusOr<std::unique_ptr<Answerer>> Create(const AttemptOptions& attempt,
                                                          execute::Device& device);

  // Every prompt, one after another, told token by token. Cancelled: nobody listens, or `stop`.
  absl::Status AnswerAll(link::AnswerLink& link, const std::atomic<bool>& stop);

  int64_t peak_bytes() const;

 private:
  Answerer(const AttemptOptions& attempt, execute::Device& device)
      : attempt_(attempt), device_(device) {}
  absl::Status Lower();
  absl::Status TakeMemory();
  absl::Status TakeArena();
  int64_t BlockBytes() const;
  int64_t FixedBytes() const;
  program::Components Held() const;

  const AttemptOptions attempt_;
  execute::Device& device_;
  program::Program program_;
  std::optional<Prompts> prompts_;
  program::GenerationLayout layout_;
  program::Components bytes_;
  std::optional<execute::DeviceBlock> block_;
  std::optional<weights::Parameters> parameters_;
  std::optional<BatchBuffers> buffers_;
  std::optional<execute::ArenaMemory> arena_;
  std::optional<execute::Executor> executor_;
};

// The attempt from its assignment to its result, which says what went wrong.
AttemptResult RunAnswers(const AttemptOptions& attempt, execute::Device& device,
                         const std::atomic<bool>& stop_requested);

}  // namespace snug::train

#endif  // WORKER_TRAIN_ANSWERER_H_

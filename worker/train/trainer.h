// Trains: batches through the tape, gradients into the optimizer. Owns all memory of an attempt, in
// the components of program::Components and nothing beside them; of a GPU it takes them in two
// pieces, the arena and all that stays, before it reads a weight. Knows no files but the model and
// the data, no daemon, no clock.
//
// On a device whose memory the host does not read these components are the device's bytes. What the
// host holds then beside the process and the mapped data: the batch's arrays (BatchBuffers), what
// an evaluation gathers (program::EvaluationBytes, which are of the data's on a host that
// computes), a vocabulary of logits and their order while prompts are answered, an answer's words
// and its target's, 4 MiB pieces of tensors that are loaded, saved or restored, two of them pinned,
// and while a model is merged what merged_export.h says.
#ifndef WORKER_TRAIN_TRAINER_H_
#define WORKER_TRAIN_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/execute/executor.h"
#include "worker/execute/slot_memory.h"
#include "worker/program/planning/predict.h"
#include "worker/program/program.h"
#include "worker/program/tape.h"
#include "worker/train/attempt.h"
#include "worker/train/augmenter.h"
#include "worker/train/batch_buffers.h"
#include "worker/train/batches.h"
#include "worker/train/dataset.h"
#include "worker/train/device_tensors.h"
#include "worker/train/drift.h"
#include "worker/train/lowered.h"
#include "worker/train/optimizer.h"
#include "worker/train/prompts.h"
#include "worker/train/samples_log.h"
#include "worker/train/step_result.h"
#include "worker/weights/parameters.h"

namespace snug::train {

// Rows to go through, micro-batch by micro-batch. Owns nothing.
struct MicroBatches {
  const Dataset& dataset;
  const EpochPlan& plan;
  BatchRange range;
  const char* set;  // What messages call the dataset.
};

class Trainer {
 public:
  // ResourceExhausted when the attempt's cap is too small for it; Internal when what it holds is
  // not, to the byte, what was promised for it.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const AttemptOptions& attempt,
                                                         execute::Device& device);

  // One optimizer step in two halves; between them gradients can be read, but those released, whose
  // weights are changed by then. OutOfRange, naming step and rows: a loss or gradient not finite.
  absl::StatusOr<StepResult> AccumulateGradients();
  // Whether the first half may be made again where it has failed: it has changed no weight then.
  bool can_repeat_step() const;
  absl::Status ApplyGradients(const StepResult& step);

  // Over the evaluation set, or else the last training batch; no dropout. OutOfRange as above.
  absl::StatusOr<Evaluation> Evaluate();

  // Answers to the job's prompts, one after another; none where there are no prompts.
  absl::StatusOr<std::vector<Sample>> AnswerPrompts();

  // Of answers to the evaluation set's rows against their targets, where the job asks for them.
  absl::StatusOr<Figures> ScoreAnswers();
  // Between two steps: to other tapes, and an arena of their size in place of the old one. The peak
  // of memory() begins anew. An error: the attempt has no arena any more.
  absl::StatusOr<PlanAnswer> ChangePlan(const PlanOrder& order);

  // How far the plan's gradient is from the exact one, on rows of the step that comes. Between two
  // steps, of which the next is what it would have been.
  absl::StatusOr<Drift> MeasureDrift();
  bool is_exact() const { return lowered_.inexact_kinds.empty(); }  // The plan, or nobody asks.

  // Goes on after `steps` steps, the next from `cursor`; the caller has filled weights and moments.
  void ResumeAt(int64_t steps, DataCursor cursor, int64_t tokens);

  const std::string& plan_name() const { return lowered_.name; }  // Of the one in force.
  int64_t global_step() const { return global_step_; }
  int64_t max_steps() const { return max_steps_; }
  int64_t num_tokens() const { return num_tokens_; }
  DataCursor cursor() const { return walk_->cursor(); }
  double epochs_done() const { return walk_->epochs_done(); }
  bool has_evaluation_set() const { return evaluation_.has_value(); }
  Memory memory() const;
  // Where its tensors lie, for checkpoints: null where the host reads them by itself.
  const checkpoint::TensorMemory* tensor_memory() const { return tensors_.memory(); }

  const program::Program& program() const { return program_; }
  weights::Parameters& parameters() { return *parameters_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  const Dataset& dataset() const { return *dataset_; }
  // For profiles: the rows and the tape of the last step, and what its last run took.
  const EpochPlan& epoch_plan() const { return walk_->plan(); }
  const program::Tape& step_tape() const { return lowered_.step; }
  const execute::Executor& executor() const { return *executor_; }
  const execute::ArenaMemory& arena() const { return *arena_; }  // Idle between two calls.

 private:
  Trainer(const AttemptOptions& attempt, execute::Device& device)
      : attempt_(attempt), device_(device), tensors_(device) {}

  absl::Status LoadData();
  int64_t FixedBytes() const;  // Of the cap, what the allocator does not give out.
  absl::StatusOr<Lowered> Lower(const program::NamedPlan& plan, int32_t head_rows,
                                const std::optional<program::Components>& promised) const;
  absl::Status AddExactStep(const program::Plan& plan, const program::LowerOptions& options,
                            Lowered& lowered, int64_t& arena_bytes) const;
  absl::Status TakeMemory();
  absl::Status TakeArena(const Lowered& lowered);
  int64_t BlockBytes() const;        // On a GPU: of all but the arena, in whole pages.
  program::Components Held() const;  // What was really taken.
  MicroBatches OfTraining(BatchRange range) const;  // Of the walk's plan.
  program::TapeKey GenerationKey() const;           // Of all that is answered; empty: nothing is.
  // `sums`: null where nothing is evaluated.
  absl::StatusOr<TokenMetrics> RunMicroBatches(const program::Tape& tape,
                                               const MicroBatches& batches, EvaluationSums* sums);

  const AttemptOptions attempt_;
  execute::Device& device_;
  const DeviceTensors tensors_;
  program::Program program_;
  std::optional<Dataset> dataset_, evaluation_;
  std::unique_ptr<BatchWalk> walk_;
  Lowered lowered_;
  std::optional<execute::DeviceBlock> block_;  // On a GPU: what all below but the arena is part of.
  std::optional<weights::Parameters> parameters_;
  std::optional<Optimizer> optimizer_;
  std::optional<BatchBuffers> buffers_;
  std::optional<Augmenter> augmenter_;
  program::TapeKey evaluation_key_, inputs_key_;
  std::optional<Prompts> prompts_;
  std::optional<execute::ArenaMemory> arena_;
  std::optional<execute::Executor> executor_;
  int64_t data_bytes_ = 0;
  int64_t global_step_ = 0, max_steps_ = 0, num_tokens_ = 0;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_TRAINER_H_

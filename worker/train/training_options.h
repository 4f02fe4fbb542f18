// How an attempt trains: the training section of its job, as plain data with every default filled
// in. Zero means what the job file's reference says it means.
#ifndef WORKER_TRAIN_TRAINING_OPTIONS_H_
#define WORKER_TRAIN_TRAINING_OPTIONS_H_

#include <cstdint>
#include <string>

#include "worker/program/augmentation.h"

namespace snug::train {

enum class Schedule : uint8_t {
  kLinear,
  kCosine,
  kConstant,
  kConstantWithWarmup,
  kCosineWithMinLr,
  kCosineWithRestarts,
  kPolynomial,
  kWarmupStableDecay,
};

// What schedules take beside their warm-up; each reads its own. Names and meaning are transformers'
// (lr_scheduler_kwargs).
struct ScheduleOptions {
  enum class Shape : uint8_t { kLinear, kCosine, kOneMinusSqrt };
  double num_cycles = 0.5;  // Restarts: whole ones, 1 by default.
  double min_lr_rate = 0.0;
  double lr_end = 1e-7;
  double power = 1.0;
  int64_t num_stable_steps = -1;  // -1: what warm-up and decay leave.
  int64_t num_decay_steps = 0;
  Shape warmup_type = Shape::kLinear;
  Shape decay_type = Shape::kCosine;
  double min_lr_ratio = 0.0;
};

// When something is done during a run; `kBest`: when an evaluation is the best so far.
enum class Strategy : uint8_t { kNo, kSteps, kEpoch, kBest };

// What is done about the best evaluation so far.
struct BestOptions {
  std::string metric = "loss";  // Of program::EvalMetricsOf.
  bool greater_is_better = false;
  bool load_at_end = false;
  int64_t patience = 0;  // Evaluations without a better one until the run stops; 0: it does not.
  double threshold = 0.0;
};

// How prompts are answered at each evaluation.
struct SampleOptions {
  int64_t max_new_tokens = 0;  // 0: no prompts.
  double temperature = 0.0;    // 0: the likeliest token, always.
  double top_p = 1.0;
};

struct TrainingOptions {
  double epochs = 1.0;
  int64_t max_steps = 0;     // 0: as many as `epochs` give.
  int64_t batch_rows = 8;    // Rows (packed: sequences) per micro-batch.
  int64_t accumulation = 1;  // Micro-batches per optimizer step.
  double learning_rate = 2e-4;
  Schedule schedule = Schedule::kCosine;
  ScheduleOptions schedule_options;
  double warmup_ratio = 0.0;  // Unused when warmup_steps > 0.
  int64_t warmup_steps = 0;
  double weight_decay = 0.0;
  double max_grad_norm = 1.0;  // 0: no clipping.
  int64_t max_seq_length = 0;  // Tokens.
  bool packing = true;
  uint64_t seed = 42;
  int64_t eval_steps = 0;  // 0: at the end only.
  int64_t save_steps = 0;  // 0: none but the export.
  int64_t save_total_limit = 2;
  int64_t logging_steps = 1;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool tf32 = false;  // On a GPU (execute/gemm.h).
  double neftune_alpha = 0.0;
  double mlm_probability = 0.15;
  bool group_by_length = false;
  Strategy eval_strategy = Strategy::kSteps;  // kNo, or kSteps with 0 steps: at the end only.
  Strategy save_strategy = Strategy::kSteps;
  Strategy logging_strategy = Strategy::kSteps;
  BestOptions best;
  SampleOptions samples;
  // Of an answer to a row that is evaluated; 0: none is generated.
  int64_t generation_max_length = 0;
  program::Augmentation augmentation = program::Augmentation::kNone;
  bool tensorboard = false;  // An event file beside metrics.jsonl.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_TRAINING_OPTIONS_H_

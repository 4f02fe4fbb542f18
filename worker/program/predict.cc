#include "worker/program/predict.h"

#include <algorithm>

#include "proto/snug/status_macros.h"
#include "worker/program/generation.h"
#include "worker/program/moments.h"
#include "worker/program/quantization.h"
#include "worker/program/replay.h"

namespace snug::program {

int64_t BatchBytes(const Program& program, const TapeKey& key) {
  constexpr int64_t k32 = 4, k64 = 8;
  const int64_t frequencies = program.config.rotary_width() / 2;
  const int64_t table = Aligned(frequencies * k32) +                  // frequencies
                        2 * Aligned(key.tokens * frequencies * k32);  // cos, sin
  const int64_t tables = program.config.local_rope_theta > 0.0 ? 2 : 1;
  return 2 * Aligned(key.tokens * k32) +  // ids, positions within the document
         Aligned(key.tokens * k64) +      // trained rows,
         2 * Aligned(key.tokens * k32) +  // their labels and loss weights,
         2 * Aligned(key.tokens * k64) +  // what is found of them: loss, entropy
         Aligned(key.tokens * k32) +      // and whether the label is the likeliest
         Aligned((key.documents + 1) * k64) + tables * table;
}

Components StaticComponents(const Program& program, const TapeKey& key, const Machine& machine,
                            int64_t context_bytes) {
  constexpr int64_t kF32 = 4;
  Components bytes;
  bytes.context = context_bytes;
  for (const Parameter& parameter : program.parameters) {
    const int64_t held = ValueBytes(parameter);
    (parameter.adapter ? bytes.adapter : bytes.weights) += held;
    if (!parameter.trainable) continue;
    bytes.gradients += Aligned(parameter.elements() * kF32);
    bytes.optimizer += MomentBytes(program, parameter);
    if (HasMaster(parameter)) bytes.optimizer += Aligned(parameter.elements() * kF32);
  }
  if (!machine.cpu) bytes.optimizer += kNormBytes;
  bytes.inputs = BatchBytes(program, key);
  return bytes;
}

int64_t ArenaBytes(const Components& others, int64_t needed, const Machine& machine) {
  if (machine.cpu) return needed;
  const int64_t beside = others.held() - others.arena;
  return (beside + needed + kGpuPageBytes - 1) / kGpuPageBytes * kGpuPageBytes - beside;
}

namespace {

absl::StatusOr<double> KeepSeconds(const Program& program, const LowerOptions& options) {
  ASSIGN_OR_RETURN(const Tape keep, Lower(program, RecomputePlan(program, 0), options));
  return ModelledSeconds(ReplayTape(keep).work);
}

absl::StatusOr<Prediction> PredictAgainst(double keep_seconds, const Program& program,
                                          const Plan& plan, const PredictOptions& options) {
  ASSIGN_OR_RETURN(const Tape step, Lower(program, plan, options.lower));
  const Replay replay = ReplayTape(step);
  LowerOptions evaluation = options.lower;
  evaluation.training = false;
  if (options.evaluation_key.tokens > 0) evaluation.key = options.evaluation_key;
  ASSIGN_OR_RETURN(const Tape forward, Lower(program, plan, evaluation));
  const TapeKey inputs = options.lower.key.Joined(evaluation.key).Joined(options.generation_key);
  Prediction prediction;
  prediction.plan = plan;
  const Machine& machine = options.lower.machine;
  prediction.bytes = StaticComponents(program, inputs, machine, options.context_bytes);
  if (machine.cpu) prediction.bytes.data = options.data_bytes;
  int64_t needed = std::max(step.arena_bytes, forward.arena_bytes);
  if (options.generation_key.tokens > 0) {
    LowerOptions generation = options.lower;
    generation.key = options.generation_key;
    ASSIGN_OR_RETURN(const GenerationLayout layout, LayOutGeneration(program, plan, generation));
    needed = std::max(needed, layout.bytes);
  }
  prediction.bytes.arena = ArenaBytes(prediction.bytes, needed, machine);
  prediction.peak = replay.peak;
  prediction.alignment = prediction.bytes.arena - replay.peak.total();
  prediction.relative_work = ModelledSeconds(replay.work) / keep_seconds;
  return prediction;
}

}  // namespace

absl::StatusOr<Prediction> Predict(const Program& program, const Plan& plan,
                                   const PredictOptions& options) {
  ASSIGN_OR_RETURN(const double keep_seconds, KeepSeconds(program, options.lower));
  return PredictAgainst(keep_seconds, program, plan, options);
}

absl::StatusOr<std::vector<Prediction>> PredictRecomputePlans(const Program& program,
                                                              const PredictOptions& options) {
  ASSIGN_OR_RETURN(const double keep_seconds, KeepSeconds(program, options.lower));
  std::vector<Prediction> predictions;
  for (int k = 0; k <= static_cast<int>(program.config.layers); ++k) {
    ASSIGN_OR_RETURN(Prediction prediction,
                     PredictAgainst(keep_seconds, program, RecomputePlan(program, k), options));
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

int FastestThatFits(const std::vector<Prediction>& predictions, int64_t budget_bytes) {
  int fastest = -1;
  for (size_t i = 0; i < predictions.size(); ++i) {
    if (predictions[i].bytes.total() > budget_bytes) continue;
    if (fastest < 0 ||
        predictions[i].relative_work < predictions[static_cast<size_t>(fastest)].relative_work)
      fastest = static_cast<int>(i);
  }
  return fastest;
}

}  // namespace snug::program

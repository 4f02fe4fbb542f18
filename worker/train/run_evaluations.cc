#include "worker/train/run_evaluations.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/eval_metrics.h"

namespace snug::train {
namespace {

// How far two processes may be apart on the loss of one checkpoint, as a share of it: other threads
// and processors add in another order. That changes the last of 24 bits in fp32 and of 8 in bf16,
// less in a mean over tokens; wrong weights give another loss altogether.
constexpr double kF32LossTolerance = 1e-4;
constexpr double kBf16LossTolerance = 1e-2;

}  // namespace

absl::Status RunEvaluations::Evaluate() {
  const Clock::time_point begin = Clock::now();
  TrainingProgress& progress = run_.progress;
  ASSIGN_OR_RETURN(Evaluation evaluation, run_.trainer->Evaluate());
  ASSIGN_OR_RETURN(Figures of_answers, run_.trainer->ScoreAnswers());
  evaluation.figures.merge(of_answers);
  const EvalMetrics line = {.eval_loss = evaluation.loss,
                            .figures = evaluation.figures,
                            .runtime = SecondsSince(begin),
                            .global_step = progress.global_step,
                            .epoch = progress.epoch};
  progress.eval_loss = evaluation.loss;
  progress.eval_figures = evaluation.figures;
  evaluated_step_ = progress.global_step;
  ASSIGN_OR_RETURN(const std::vector<Sample> answers, run_.trainer->AnswerPrompts());
  RETURN_IF_ERROR(metrics_.Log(line, answers));
  return checkpoints_.Judge(evaluation);
}

absl::StatusOr<double> RunEvaluations::LossToExport() {
  ASSIGN_OR_RETURN(const double last, FinalLoss());
  const BestOptions& options = run_.attempt.training.best;
  const BestState& best = checkpoints_.best();
  if (!options.load_at_end || best.step < 0 || best.step == run_.trainer->global_step())
    return last;
  RETURN_IF_ERROR(checkpoints_.RestoreBest());
  if (options.metric == program::kLossMetric) return LossAsReported(best.step, best.metric);
  return LossNow();
}

absl::StatusOr<double> RunEvaluations::FinalLoss() {
  const int64_t step = run_.trainer->global_step();
  if (!run_.trainer->has_evaluation_set()) return LossNow();
  if (metrics_.steps().last_evaluated != step) RETURN_IF_ERROR(Evaluate());
  if (evaluated_step_ == step) return *run_.progress.eval_loss;
  return LossAsReported(step, *run_.progress.eval_loss);
}

absl::StatusOr<double> RunEvaluations::LossNow() {
  ASSIGN_OR_RETURN(const Evaluation now, run_.trainer->Evaluate());
  return now.loss;
}

// The attempt before reported it, perhaps with other threads or on another processor.
absl::StatusOr<double> RunEvaluations::LossAsReported(int64_t step, double reported) {
  ASSIGN_OR_RETURN(const double loss, LossNow());
  const bool bf16 = run_.attempt.mode.compute == program::DType::kBF16;
  const double tolerance = bf16 ? kBf16LossTolerance : kF32LossTolerance;
  if (std::abs(loss - reported) <= tolerance * std::abs(reported)) return loss;
  return absl::DataLossError(absl::StrCat("the loss of the evaluation of step ", step,
                                          " was reported as ", reported, ", its checkpoint gives ",
                                          loss, ": more than ", tolerance, " of it apart"));
}

}  // namespace snug::train

#include "worker/train/run_checkpoints.h"

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/export.h"
#include "worker/execute/gemm.h"
#include "worker/program/eval_metrics.h"
#include "worker/train/resumable.h"
#include "worker/train/run_output.h"
#include "worker/train/tensors.h"

namespace snug::train {
namespace {

// None: it is undefined, as a correlation of predictions that are all the same.
std::optional<double> MetricOf(const Evaluation& evaluation, const std::string& name) {
  if (name == program::kLossMetric) return evaluation.loss;
  const auto found = evaluation.figures.find(name);
  if (found == evaluation.figures.end()) return std::nullopt;
  return found->second;
}

}  // namespace

absl::StatusOr<checkpoint::RunState> RunCheckpoints::Restore(const std::string& folder) {
  Trainer& trainer = *run_.trainer;
  ASSIGN_OR_RETURN(
      checkpoint::RunState state,
      checkpoint::Restore(folder, WeightsOf(trainer, Digits::kExact), OptimizerStateOf(trainer)));
  RETURN_IF_ERROR(trainer.parameters().RoundMasters());
  return state;
}

// With the weights of another job's checkpoint; its optimizer's state and its place are its own.
absl::Status RunCheckpoints::BeginWith(const std::string& folder) {
  Trainer& trainer = *run_.trainer;
  ASSIGN_OR_RETURN(const checkpoint::RunState state,
                   checkpoint::RestoreWeights(folder, WeightsOf(trainer, Digits::kExact)));
  RETURN_IF_ERROR(trainer.parameters().RoundMasters());
  std::cerr << "begins with the weights of job " << state.job_id << " after step "
            << state.global_step << std::endl;
  return absl::OkStatus();
}

absl::Status RunCheckpoints::Resume() {
  const AttemptOptions& attempt = run_.attempt;
  if (attempt.resume_from.empty())
    return attempt.start_from.empty() ? absl::OkStatus() : BeginWith(attempt.start_from);
  Trainer& trainer = *run_.trainer;
  ASSIGN_OR_RETURN(const checkpoint::RunState state, Restore(attempt.resume_from));
  RETURN_IF_ERROR(CheckResumable(state, attempt, trainer.dataset().sha256()));
  if (!state.products.empty()) {
    ASSIGN_OR_RETURN(const execute::GemmChoice choice, execute::ParseGemmChoice(state.products));
    execute::UseGemmChoice(choice);
  }
  trainer.ResumeAt(state.global_step, {state.data_epoch, state.data_micro_batch}, state.num_tokens);
  TrainingProgress& progress = run_.progress;
  progress.resumed_from_step = progress.global_step = state.global_step;
  progress.num_tokens = state.num_tokens;
  progress.loss = state.last_loss;
  progress.epoch = trainer.epochs_done();
  if (state.job_id == attempt.job_id) best_ = state.best;  // An extended job looks for its own.
  ForgetBestThatIsGone();
  std::cerr << "resumed from " << attempt.resume_from << " after step " << state.global_step
            << std::endl;
  return absl::OkStatus();
}

// The checkpoint resumed from may be older than one that took the place of its best.
void RunCheckpoints::ForgetBestThatIsGone() {
  if (!KeepsBest() || best_.step < 0) return;
  if (BestFolder() == run_.attempt.resume_from) return;  // Verified when it was restored.
  const absl::Status there = checkpoint::Verify(BestFolder()).status();
  if (there.ok()) return;
  std::cerr << "the best checkpoint, of step " << best_.step << ", is gone: " << there << "\n";
  best_ = {};
}

bool RunCheckpoints::KeepsBest() const {
  const TrainingOptions& training = run_.attempt.training;
  return training.best.load_at_end || training.save_strategy == Strategy::kBest;
}

bool RunCheckpoints::StopsEarly() const {
  if (!PatienceIsOver(run_.attempt.training.best, best_)) return false;
  std::cerr << "stopped after step " << run_.trainer->global_step() << ": " << best_.waited
            << " evaluations without a better one than that of step " << best_.step << "\n";
  return true;
}

absl::Status RunCheckpoints::Judge(const Evaluation& evaluation) {
  const BestOptions& options = run_.attempt.training.best;
  const BestState before = best_;
  const std::optional<double> metric = MetricOf(evaluation, options.metric);
  if (!Observe(options, run_.progress.global_step, metric, best_) || !KeepsBest())
    return absl::OkStatus();
  best_.checkpoint = checkpoint::CheckpointFolder(State());
  RETURN_IF_ERROR(Save());
  if (saved()) return absl::OkStatus();
  const int64_t waited = best_.waited;
  best_ = before;
  best_.waited = waited;
  return absl::OkStatus();
}

absl::Status RunCheckpoints::RestoreBest() {
  RETURN_IF_ERROR(Restore(BestFolder()).status());
  std::cerr << "the best evaluation was that of step " << best_.step << ": its weights are taken\n";
  return absl::OkStatus();
}

checkpoint::RunState RunCheckpoints::State() const {
  const AttemptOptions& attempt = run_.attempt;
  const Trainer& trainer = *run_.trainer;
  const DataCursor cursor = trainer.cursor();
  return {.job_id = attempt.job_id,
          .epoch = attempt.epoch,
          .global_step = trainer.global_step(),
          .max_steps = trainer.max_steps(),
          .seed = attempt.training.seed,
          .data_epoch = cursor.epoch,
          .data_micro_batch = cursor.micro_batch,
          .num_tokens = trainer.num_tokens(),
          .last_loss = run_.progress.loss,
          .plan_name = trainer.plan_name(),
          .dataset_sha256 = trainer.dataset().sha256(),
          .best = best_,
          .products = execute::GemmChoiceText(execute::GemmChoiceInUse())};
}

// With the metrics up to its step on the disk: who resumes from it reads them. A whole model can be
// loaded from its checkpoint; without its base's files, which may be gone by now, it is no less one
// to resume from.
absl::StatusOr<checkpoint::Saved> RunCheckpoints::SaveWithMetrics() {
  RETURN_IF_ERROR(metrics_.Sync());
  Trainer& trainer = *run_.trainer;
  const std::vector<checkpoint::TensorBytes> weights = WeightsOf(trainer, Digits::kExact);
  const auto write_model = [&](const std::string& folder) {
    absl::Status written = checkpoint::WriteModelFiles(folder, OptionsOfExport(run_), weights);
    if (!written.ok()) std::cerr << "a checkpoint without config.json: " << written << std::endl;
    return written;
  };
  return checkpoint::Save(run_.attempt.checkpoints_dir, State(), weights, OptimizerStateOf(trainer),
                          run_.attempt.mode.lora ? checkpoint::ModelWriter() : write_model);
}

absl::Status RunCheckpoints::Save() {
  const Clock::time_point begin = Clock::now();
  const int64_t step = run_.trainer->global_step();
  const auto saved = SaveWithMetrics();
  if (absl::IsOutOfRange(saved.status()))
    return absl::OutOfRangeError(absl::StrCat("step ", step, ": ", saved.status().message()));
  if (!saved.ok()) {
    std::cerr << "no checkpoint at step " << step << ": " << saved.status() << std::endl;
    return absl::OkStatus();
  }
  saved_step_ = step;
  std::cerr << "checkpoint " << saved->path << std::endl;
  run_.link.ReportCheckpoint({.global_step = saved_step_,
                              .path = saved->path,
                              .manifest_sha256 = saved->manifest_sha256,
                              .bytes = saved->bytes,
                              .seconds = SecondsSince(begin)});
  const absl::Status pruned = checkpoint::Prune(
      run_.attempt.checkpoints_dir, run_.attempt.training.save_total_limit, best_.checkpoint);
  if (!pruned.ok()) std::cerr << "older checkpoints stay: " << pruned << std::endl;
  return absl::OkStatus();
}

}  // namespace snug::train

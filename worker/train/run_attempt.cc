#include "worker/train/run_attempt.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/new_file.h"
#include "worker/execute/gemm.h"
#include "worker/program/safetensors.h"
#include "worker/train/best.h"
#include "worker/train/failure.h"
#include "worker/train/merged_export.h"
#include "worker/train/metrics_log.h"
#include "worker/train/resumable.h"
#include "worker/train/samples_log.h"
#include "worker/train/tensors.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

using checkpoint::TensorBytes;
using Clock = std::chrono::steady_clock;

// How far two processes may be apart on the loss of one checkpoint, as a share of it: other threads
// and processors add in another order. That changes the last of 24 bits in fp32 and of 8 in bf16,
// less in a mean over tokens; wrong weights give another loss altogether.
constexpr double kF32LossTolerance = 1e-4;
constexpr double kBf16LossTolerance = 1e-2;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Run {
 public:
  Run(const AttemptOptions& attempt, execute::Device& device, link::WorkerLink& link,
      const std::atomic<bool>& stop_requested)
      : attempt_(attempt), device_(device), link_(link), stop_requested_(stop_requested) {}

  // Cancelled: stopped on command.
  absl::Status Go() {
    RETURN_IF_ERROR(checkpoint::MakeFolders(attempt_.attempt_dir));
    ASSIGN_OR_RETURN(trainer_, Trainer::Create(attempt_, device_));
    RETURN_IF_ERROR(Resume());
    RETURN_IF_ERROR(OpenMetrics());
    progress_.max_steps = trainer_->max_steps();
    std::cerr << absl::StrCat("job ", attempt_.job_id, ", attempt ", attempt_.epoch, ": ",
                              progress_.max_steps, " steps under plan \"", attempt_.plan.name,
                              "\", ", attempt_.cap_bytes, " bytes, ", attempt_.threads,
                              " threads\n");
    Report();
    while (trainer_->global_step() < trainer_->max_steps() && !StopsEarly()) {
      RETURN_IF_ERROR(Obey());
      RETURN_IF_ERROR(Step());
    }
    return Finish();
  }

  // A device that has failed makes other calls fail, each with an error of its own, and saves,
  // which need not succeed: it is the cause.
  absl::Status CauseOf(const absl::Status& status) const {
    const absl::Status device = device_.Synchronize();
    return device.ok() ? status : device;
  }

  AttemptResult Result(const absl::Status& status) const;

 private:
  static std::string SamplesFile(const std::string& attempt_dir) {
    return attempt_dir + "/samples.jsonl";
  }
  std::string MetricsFile() const { return attempt_.attempt_dir + "/metrics.jsonl"; }
  std::string Output() const { return attempt_.attempt_dir + "/output"; }

  absl::StatusOr<checkpoint::RunState> Restore(const std::string& folder) {
    ASSIGN_OR_RETURN(checkpoint::RunState state,
                     checkpoint::Restore(folder, WeightsOf(*trainer_, Digits::kExact),
                                         OptimizerStateOf(*trainer_)));
    RETURN_IF_ERROR(trainer_->parameters().RoundMasters());
    return state;
  }

  absl::Status Resume() {
    if (attempt_.resume_from.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const checkpoint::RunState state, Restore(attempt_.resume_from));
    RETURN_IF_ERROR(CheckResumable(state, attempt_, trainer_->dataset().sha256()));
    if (!state.products.empty()) {
      ASSIGN_OR_RETURN(const execute::GemmChoice choice, execute::ParseGemmChoice(state.products));
      execute::UseGemmChoice(choice);
    }
    trainer_->ResumeAt(state.global_step, {state.data_epoch, state.data_micro_batch},
                       state.num_tokens);
    progress_.resumed_from_step = progress_.global_step = state.global_step;
    progress_.num_tokens = state.num_tokens;
    progress_.loss = state.last_loss;
    progress_.epoch = trainer_->epochs_done();
    best_ = state.best;
    ForgetBestThatIsGone();
    std::cerr << "resumed from " << attempt_.resume_from << " after step " << state.global_step
              << std::endl;
    return absl::OkStatus();
  }

  // The checkpoint resumed from may be older than one that took the place of its best.
  void ForgetBestThatIsGone() {
    if (!KeepsBest() || best_.step < 0) return;
    if (BestFolder() == attempt_.resume_from) return;  // Verified when it was restored.
    const absl::Status there = checkpoint::Verify(BestFolder()).status();
    if (there.ok()) return;
    std::cerr << "the best checkpoint, of step " << best_.step << ", is gone: " << there << "\n";
    best_ = {};
  }

  bool KeepsBest() const {
    return attempt_.training.best.load_at_end || attempt_.training.save_strategy == Strategy::kBest;
  }
  std::string BestFolder() const { return attempt_.checkpoints_dir + "/" + best_.checkpoint; }

  bool StopsEarly() const {
    if (!PatienceIsOver(attempt_.training.best, best_)) return false;
    std::cerr << "stopped after step " << trainer_->global_step() << ": " << best_.waited
              << " evaluations without a better one than that of step " << best_.step << "\n";
    return true;
  }

  absl::Status OpenMetrics() {
    const int64_t step = progress_.resumed_from_step;
    ASSIGN_OR_RETURN(
        MetricsLog log,
        step == 0 ? MetricsLog::Create(MetricsFile())
                  : MetricsLog::Resume(MetricsFile(),
                                       {.previous = attempt_.previous_metrics, .step = step}));
    metrics_.emplace(std::move(log));
    if (!attempt_.prompts_file.empty()) RETURN_IF_ERROR(OpenSamples());
    if (metrics_->steps().last_evaluated >= 0) progress_.eval_loss = metrics_->steps().eval_loss;
    return absl::OkStatus();
  }

  // Beside the metrics, as the attempt before had them: those of evaluations that it finished.
  absl::Status OpenSamples() const {
    const std::string folder =
        std::filesystem::path(attempt_.previous_metrics).parent_path().string();
    return BeginSamples(SamplesFile(attempt_.attempt_dir),
                        folder.empty() ? "" : SamplesFile(folder),
                        metrics_->steps().last_evaluated);
  }

  absl::Status Obey() {
    const link::Command command =
        stop_requested_ ? link::Command::kCheckpointAndStop : link_.command();
    if (command == link::Command::kNone) return absl::OkStatus();
    if (command == link::Command::kCheckpointAndStop && saved_step_ != trainer_->global_step()) {
      RETURN_IF_ERROR(Save());
    }
    return absl::CancelledError(absl::StrCat("stopped after step ", trainer_->global_step()));
  }

  absl::Status Step() {
    const Clock::time_point begin = Clock::now();
    ASSIGN_OR_RETURN(const StepResult step, trainer_->AccumulateGradients());
    RETURN_IF_ERROR(trainer_->ApplyGradients(step));
    progress_.global_step = trainer_->global_step();
    progress_.loss = step.loss;
    progress_.grad_norm = step.gradient_norm;
    progress_.learning_rate = step.learning_rate;
    progress_.epoch = trainer_->epochs_done();
    progress_.num_tokens = trainer_->num_tokens();
    progress_.step_seconds = SecondsSince(begin);
    progress_.tokens_per_second = static_cast<double>(step.tokens) / progress_.step_seconds;
    RETURN_IF_ERROR(Log(step));
    const TrainingOptions& training = attempt_.training;
    if (IsDue(training.logging_strategy, training.logging_steps)) Tell();
    if (trainer_->has_evaluation_set() && IsDue(training.eval_strategy, training.eval_steps)) {
      RETURN_IF_ERROR(Evaluate());
    }
    Report();
    const bool due = IsDue(training.save_strategy, training.save_steps);
    return due && saved_step_ != trainer_->global_step() ? Save() : absl::OkStatus();
  }

  absl::Status Log(const StepResult& step) {
    return metrics_->Append(StepMetrics{.loss = progress_.loss,
                                        .grad_norm = progress_.grad_norm,
                                        .learning_rate = progress_.learning_rate,
                                        .epoch = progress_.epoch,
                                        .global_step = progress_.global_step,
                                        .num_tokens = progress_.num_tokens,
                                        .samples = step.samples,
                                        .mean_token_accuracy = step.mean_token_accuracy,
                                        .entropy = step.entropy,
                                        .tokens_per_second = progress_.tokens_per_second,
                                        .step_seconds = progress_.step_seconds});
  }

  // The line of the worker's log, for people; metrics.jsonl is for programs.
  void Tell() const {
    std::cerr << absl::StrCat("step ", progress_.global_step, " of ", progress_.max_steps,
                              ": loss ", progress_.loss, ", gradient norm ", progress_.grad_norm,
                              ", ", progress_.tokens_per_second, " tokens/s\n");
  }

  // At the end of the run as well, unless it is never.
  bool IsDue(Strategy strategy, int64_t every) const {
    const int64_t step = progress_.global_step;
    const bool end = step == trainer_->max_steps();
    if (strategy == Strategy::kSteps) return every > 0 && (end || step % every == 0);
    return strategy == Strategy::kEpoch && (end || trainer_->cursor().micro_batch == 0);
  }

  absl::Status Evaluate() {
    const Clock::time_point begin = Clock::now();
    ASSIGN_OR_RETURN(const TokenMetrics evaluation, trainer_->Evaluate());
    const EvalMetrics line = {.eval_loss = evaluation.loss,
                              .mean_token_accuracy = evaluation.mean_token_accuracy,
                              .entropy = evaluation.entropy,
                              .runtime = SecondsSince(begin),
                              .global_step = progress_.global_step,
                              .epoch = progress_.epoch};
    progress_.eval_loss = evaluation.loss;
    evaluated_step_ = progress_.global_step;
    RETURN_IF_ERROR(AnswerPrompts());
    RETURN_IF_ERROR(metrics_->Append(line));  // Last: whoever resumes takes the rest as done.
    return Judge(evaluation);
  }

  absl::Status AnswerPrompts() {
    if (attempt_.prompts_file.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<Sample> samples, trainer_->AnswerPrompts());
    for (const Sample& sample : samples) std::cerr << Shown(sample) << "\n";
    return AppendSamples(SamplesFile(attempt_.attempt_dir), samples);
  }

  // The best one is kept as soon as it is known. One that finds no room on the disk is not kept,
  // and so is not the best.
  absl::Status Judge(const TokenMetrics& evaluation) {
    const BestOptions& options = attempt_.training.best;
    const BestState before = best_;
    const bool by_loss = options.metric == BestOptions::Metric::kLoss;
    const double metric = by_loss ? evaluation.loss : evaluation.mean_token_accuracy;
    if (!Observe(options, progress_.global_step, metric, best_) || !KeepsBest())
      return absl::OkStatus();
    best_.checkpoint = checkpoint::CheckpointFolder(State());
    RETURN_IF_ERROR(Save());
    if (saved_step_ == progress_.global_step) return absl::OkStatus();
    const int64_t waited = best_.waited;
    best_ = before;
    best_.waited = waited;
    return absl::OkStatus();
  }

  void Report() {
    const Memory memory = trainer_->memory();
    link_.ReportProgress(progress_, {.measured_peak_bytes = memory.peak_bytes,
                                     .current_bytes = memory.current_bytes});
  }

  checkpoint::RunState State() const {
    const DataCursor cursor = trainer_->cursor();
    return {.job_id = attempt_.job_id,
            .epoch = attempt_.epoch,
            .global_step = trainer_->global_step(),
            .max_steps = trainer_->max_steps(),
            .seed = attempt_.training.seed,
            .data_epoch = cursor.epoch,
            .data_micro_batch = cursor.micro_batch,
            .num_tokens = trainer_->num_tokens(),
            .last_loss = progress_.loss,
            .plan_name = attempt_.plan.name,
            .dataset_sha256 = trainer_->dataset().sha256(),
            .best = best_,
            .products = execute::GemmChoiceText(execute::GemmChoiceInUse())};
  }

  // With the metrics up to its step on the disk: who resumes from it reads them.
  absl::StatusOr<checkpoint::Saved> SaveWithMetrics() {
    RETURN_IF_ERROR(metrics_->Sync());
    return checkpoint::Save(attempt_.checkpoints_dir, State(), WeightsOf(*trainer_, Digits::kExact),
                            OptimizerStateOf(*trainer_));
  }

  // A disk that is full costs a checkpoint, not the run; weights that are not finite end it.
  absl::Status Save() {
    const Clock::time_point begin = Clock::now();
    const int64_t step = trainer_->global_step();
    const auto saved = SaveWithMetrics();
    if (absl::IsOutOfRange(saved.status()))
      return absl::OutOfRangeError(absl::StrCat("step ", step, ": ", saved.status().message()));
    if (!saved.ok()) {
      std::cerr << "no checkpoint at step " << step << ": " << saved.status() << std::endl;
      return absl::OkStatus();
    }
    saved_step_ = step;
    std::cerr << "checkpoint " << saved->path << std::endl;
    link_.ReportCheckpoint({.global_step = saved_step_,
                            .path = saved->path,
                            .manifest_sha256 = saved->manifest_sha256,
                            .bytes = saved->bytes,
                            .seconds = SecondsSince(begin)});
    const absl::Status pruned = checkpoint::Prune(
        attempt_.checkpoints_dir, attempt_.training.save_total_limit, best_.checkpoint);
    if (!pruned.ok()) std::cerr << "older checkpoints stay: " << pruned << std::endl;
    return absl::OkStatus();
  }

  // What the export must reproduce to the bit, so of this process: the loss of the evaluation
  // behind the last step; without such a set that of the last training batch.
  absl::StatusOr<double> FinalLoss() {
    const int64_t step = trainer_->global_step();
    if (!trainer_->has_evaluation_set()) return LossNow();
    if (metrics_->steps().last_evaluated != step) RETURN_IF_ERROR(Evaluate());
    if (evaluated_step_ == step) return *progress_.eval_loss;
    return LossAsReported(step, *progress_.eval_loss);
  }

  absl::StatusOr<double> LossNow() {
    ASSIGN_OR_RETURN(const TokenMetrics now, trainer_->Evaluate());
    return now.loss;
  }

  // The attempt before reported it, perhaps with other threads or on another processor.
  absl::StatusOr<double> LossAsReported(int64_t step, double reported) {
    ASSIGN_OR_RETURN(const double loss, LossNow());
    const bool bf16 = attempt_.mode.compute == program::DType::kBF16;
    const double tolerance = bf16 ? kBf16LossTolerance : kF32LossTolerance;
    if (std::abs(loss - reported) <= tolerance * std::abs(reported)) return loss;
    return absl::DataLossError(
        absl::StrCat("the loss of the evaluation of step ", step, " was reported as ", reported,
                     ", its checkpoint gives ", loss, ": more than ", tolerance, " of it apart"));
  }

  // The weights of the best checkpoint, where these are to be exported and are not there already;
  // gives the loss that they have.
  absl::StatusOr<double> LoadBest(double last_loss) {
    const BestOptions& options = attempt_.training.best;
    if (!options.load_at_end || best_.step < 0 || best_.step == trainer_->global_step())
      return last_loss;
    RETURN_IF_ERROR(Restore(BestFolder()).status());
    std::cerr << "the best evaluation was that of step " << best_.step
              << ": its weights are taken\n";
    if (options.metric == BestOptions::Metric::kLoss)
      return LossAsReported(best_.step, best_.metric);
    return LossNow();
  }

  absl::Status Finish() {
    ASSIGN_OR_RETURN(const double last_loss, FinalLoss());
    ASSIGN_OR_RETURN(const double loss, LoadBest(last_loss));
    RETURN_IF_ERROR(Export());
    RETURN_IF_ERROR(checkpoint::VerifyExport(Output() + ".tmp", trainer_->program()));
    RETURN_IF_ERROR(ReadBack());
    ASSIGN_OR_RETURN(verified_loss_, LossNow());
    if (verified_loss_ != loss)
      return absl::DataLossError(absl::StrCat("the exported files give the loss ", verified_loss_,
                                              ", the trained weights ", loss));
    if (!attempt_.prompts_file.empty())
      RETURN_IF_ERROR(CarrySamples(SamplesFile(attempt_.attempt_dir), Output() + ".tmp"));
    std::cerr << "exported; read back, it gives the loss " << verified_loss_ << std::endl;
    if (attempt_.merge) RETURN_IF_ERROR(MergeIfFinite());
    return checkpoint::Publish(Output());
  }

  // The adapter is verified by now: that the base's number type cannot hold its sum with the base
  // costs the merged model alone.
  absl::Status MergeIfFinite() {
    const absl::Status merged = Merge();
    if (!absl::IsOutOfRange(merged)) return merged;
    merge_error_ = std::string(merged.message());
    merged_loss_.reset();
    std::cerr << "not merged: " << merge_error_ << std::endl;
    return checkpoint::RemoveFolder(Output() + ".tmp/merged");
  }

  // The merged model is then evaluated in place of the trainer, which takes less than that did.
  absl::Status Merge() {
    const std::string folder = Output() + ".tmp/merged";
    RETURN_IF_ERROR(ExportMerged(folder, {.model_dir = attempt_.model_dir,
                                          .data_dir = attempt_.train_data,
                                          .program = &trainer_->program(),
                                          .parameters = &trainer_->parameters(),
                                          .arena = &trainer_->arena()}));
    const int64_t step = trainer_->global_step(), tokens = trainer_->num_tokens();
    const DataCursor cursor = trainer_->cursor();
    peak_before_merge_ = trainer_->memory().peak_bytes;
    trainer_.reset();
    device_.allocator().ResetPeak();
    ASSIGN_OR_RETURN(const AttemptOptions merged, EvaluationOf(folder, attempt_));
    ASSIGN_OR_RETURN(trainer_, Trainer::Create(merged, device_));
    trainer_->ResumeAt(step, cursor, tokens);
    ASSIGN_OR_RETURN(merged_loss_, LossNow());
    std::cerr << "merged; it gives the loss " << *merged_loss_ << std::endl;
    return absl::OkStatus();
  }

  checkpoint::ExportOptions OptionsOfExport() const {
    const program::ModelConfig& config = trainer_->program().config;
    return {.model_dir = attempt_.model_dir,
            .data_dir = attempt_.train_data,
            .base_model_name = attempt_.base_model_name,
            .lora = attempt_.mode.adapter,
            .vocabulary = config.adds_tokens() ? config.vocabulary : 0,
            .metrics_file = MetricsFile(),
            .display_name = ""};
  }

  absl::Status Export() {
    const checkpoint::ExportOptions options = OptionsOfExport();
    const std::vector<TensorBytes> weights = WeightsOf(*trainer_, Digits::kComputed);
    if (!attempt_.mode.lora) return checkpoint::ExportModel(Output(), options, weights);
    ASSIGN_OR_RETURN(const program::AdapterContents contents, checkpoint::ContentsOf(weights));
    readers_ = checkpoint::ReadersOf(attempt_.mode.adapter, contents,
                                     trainer_->program().config.model_type);
    return checkpoint::ExportAdapter(Output(), options, weights);
  }

  // The trained parameters, forgotten and read again from the files that the user will get.
  absl::Status ReadBack() {
    const std::string folder = Output() + ".tmp";
    ASSIGN_OR_RETURN(const program::TensorIndex index,
                     attempt_.mode.lora
                         ? program::ReadSafetensorsHeader(folder + "/adapter_model.safetensors")
                         : program::ReadModelIndex(folder));
    return trainer_->parameters().ReadTrained(trainer_->program(), index);
  }

  const AttemptOptions& attempt_;
  execute::Device& device_;
  link::WorkerLink& link_;
  const std::atomic<bool>& stop_requested_;
  std::unique_ptr<Trainer> trainer_;
  std::optional<MetricsLog> metrics_;
  TrainingProgress progress_;
  BestState best_;
  int64_t saved_step_ = -1;
  int64_t evaluated_step_ = -1;  // By this process.
  double verified_loss_ = 0.0;
  std::optional<double> merged_loss_;
  std::string merge_error_;
  int64_t peak_before_merge_ = 0;  // Of the trainer that the merged model's took the place of.
  std::vector<checkpoint::ReaderReport> readers_;
};

AttemptResult Run::Result(const absl::Status& status) const {
  AttemptResult result;
  result.progress = progress_;
  result.measured_peak_bytes = peak_before_merge_;
  if (trainer_ != nullptr) {
    result.measured_peak_bytes =
        std::max(result.measured_peak_bytes, trainer_->memory().peak_bytes);
  }
  if (status.ok()) {
    result.outcome = AttemptResult::Outcome::kSucceeded;
    result.output_dir = Output();
    result.verified_loss = verified_loss_;
    result.merged_loss = merged_loss_;
    result.merge_error = merge_error_;
    result.readers = readers_;
    return result;
  }
  result.message = std::string(status.message());
  if (absl::IsCancelled(status)) {
    result.outcome = AttemptResult::Outcome::kStopped;
    return result;
  }
  const Failure failure = FailureOf(status);
  result.reason = failure.reason;
  result.failure_class = failure.failure_class;
  return result;
}

}  // namespace

AttemptResult RunAttempt(const AttemptOptions& attempt, execute::Device& device,
                         link::WorkerLink& link, const std::atomic<bool>& stop_requested) {
  Run run(attempt, device, link, stop_requested);
  const absl::Status status = run.Go();
  return run.Result(status.ok() ? status : run.CauseOf(status));
}

}  // namespace snug::train

#include "worker/train/run_metrics.h"

#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"

namespace snug::train {
namespace {

// The time of day, of no zone but UTC, as that in metrics.jsonl is.
std::string Now() {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
}

void TellOf(const EvalMetrics& evaluation) {
  std::string text = absl::StrCat(Now(), " evaluation after step ", evaluation.global_step,
                                  ": eval_loss ", evaluation.eval_loss);
  for (const auto& [name, value] : evaluation.figures)
    absl::StrAppend(&text, ", eval_", name, " ", value);
  std::cerr << text << ", in " << evaluation.runtime << " s\n";
}

}  // namespace

absl::Status RunMetrics::Open() {
  const int64_t step = run_.progress.resumed_from_step, begin = run_.attempt.begin_step;
  ASSIGN_OR_RETURN(
      MetricsLog log,
      step == begin
          ? MetricsLog::Create(run_.metrics_file(), begin)
          : MetricsLog::Resume(
                run_.metrics_file(),
                {.previous = run_.attempt.previous_metrics, .step = step, .begin = begin}));
  log_.emplace(std::move(log));
  if (!run_.attempt.prompts_file.empty()) RETURN_IF_ERROR(OpenSamples());
  if (run_.attempt.training.tensorboard) RETURN_IF_ERROR(OpenEvents());
  if (steps().last_evaluated < 0) return absl::OkStatus();
  run_.progress.eval_loss = steps().eval_loss;
  run_.progress.eval_figures = steps().eval_figures;
  return absl::OkStatus();
}

// Beside the metrics, as the attempt before had them: those of evaluations that it finished.
absl::Status RunMetrics::OpenSamples() const {
  const std::filesystem::path folder =
      std::filesystem::path(run_.attempt.previous_metrics).parent_path();
  return BeginSamples(run_.samples_file(),
                      folder.empty() ? "" : (folder / "samples.jsonl").string(),
                      steps().last_evaluated);
}

// What metrics.jsonl has of attempts before is written again: a reader finds each step once.
absl::Status RunMetrics::OpenEvents() {
  ASSIGN_OR_RETURN(report::EventLog events,
                   report::EventLog::Create(run_.events_file(), run_.metrics_file()));
  events_.emplace(std::move(events));
  return absl::OkStatus();
}

absl::Status RunMetrics::Log(const StepResult& step) {
  const TrainingProgress& progress = run_.progress;
  RETURN_IF_ERROR(
      log_->Append(StepMetrics{.loss = progress.loss,
                               .grad_norm = progress.grad_norm,
                               .learning_rate = progress.learning_rate,
                               .epoch = progress.epoch,
                               .global_step = progress.global_step,
                               .num_tokens = progress.num_tokens,
                               .samples = step.samples,
                               .mean_token_accuracy = step.mean_token_accuracy,
                               .accuracy_name = AccuracyName(run_.trainer->program().config),
                               .entropy = step.entropy,
                               .tokens_per_second = progress.tokens_per_second,
                               .step_seconds = progress.step_seconds}));
  return FollowEvents();
}

absl::Status RunMetrics::Log(const EvalMetrics& evaluation, const std::vector<Sample>& answers) {
  TellOf(evaluation);
  for (const Sample& sample : answers) std::cerr << Shown(sample) << "\n";
  if (!run_.attempt.prompts_file.empty())
    RETURN_IF_ERROR(AppendSamples(run_.samples_file(), answers));
  RETURN_IF_ERROR(log_->Append(evaluation));
  return FollowEvents();
}

void RunMetrics::Tell() const {
  const TrainingProgress& progress = run_.progress;
  std::cerr << absl::StrCat(Now(), " step ", progress.global_step, " of ", progress.max_steps,
                            ": loss ", progress.loss, ", gradient norm ", progress.grad_norm, ", ",
                            progress.tokens_per_second, " tokens/s\n");
}

void RunMetrics::Tell(const Drift& drift) const {
  if (!drift.not_measured.empty())
    std::cerr << absl::StrCat(
        Now(), " the gradient is not measured against the exact one: ", drift.not_measured, "\n");
  for (const auto& [kind, found] : drift.kinds)
    std::cerr << absl::StrCat(Now(), " step ", found.global_step, ": the gradient of layers with ",
                              kind, " against the exact one, on ", found.tokens, " tokens: cosine ",
                              found.cosine, ", relative error ", found.relative_error, "\n");
}

void RunMetrics::Report() const {
  const Memory memory = run_.trainer->memory();
  run_.link.ReportProgress(run_.progress, {.measured_peak_bytes = memory.peak_bytes,
                                           .current_bytes = memory.current_bytes,
                                           .looks = run_.looks});
}

}  // namespace snug::train

#include "worker/train/run_attempt.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/new_file.h"
#include "worker/execute/torch_errors.h"
#include "worker/train/failure.h"
#include "worker/train/run.h"
#include "worker/train/run_checkpoints.h"
#include "worker/train/run_evaluations.h"
#include "worker/train/run_metrics.h"
#include "worker/train/run_output.h"

namespace snug::train {
namespace {

class Attempt {
 public:
  Attempt(const AttemptOptions& attempt, execute::Device& device, link::WorkerLink& link,
          const std::atomic<bool>& stop_requested)
      : run_{.attempt = attempt, .device = device, .link = link, .trainer = {}, .progress = {}},
        stop_requested_(stop_requested) {}

  // Cancelled: stopped on command, without an output.
  absl::Status Go() {
    RETURN_IF_ERROR(Start());
    while (true) {
      ASSIGN_OR_RETURN(const bool goes_on, GoesOn());
      if (!goes_on) return output_.Make();
      RETURN_IF_ERROR(Step());
    }
  }

  // A device that has failed makes other calls fail, each with an error of its own, and saves,
  // which need not succeed: it is the cause.
  absl::Status CauseOf(const absl::Status& status) const {
    const absl::Status device = run_.device.Synchronize();
    return device.ok() ? status : device;
  }

  AttemptResult Result(const absl::Status& status) const;

 private:
  absl::Status Start() {
    const AttemptOptions& attempt = run_.attempt;
    RETURN_IF_ERROR(checkpoint::MakeFolders(attempt.attempt_dir));
    ASSIGN_OR_RETURN(run_.trainer, Trainer::Create(attempt, run_.device));
    RETURN_IF_ERROR(checkpoints_.Resume());
    RETURN_IF_ERROR(metrics_.Open());
    RETURN_IF_ERROR(BeginLooks());
    run_.progress.max_steps = run_.trainer->max_steps();
    drift_ = {.every = attempt.drift_steps,
              .first = attempt.begin_step + 1,
              .last = run_.progress.max_steps,
              .measured = attempt.drift_step};
    std::cerr << absl::StrCat("job ", attempt.job_id, ", attempt ", attempt.epoch, ": ",
                              run_.progress.max_steps, " steps under plan \"", attempt.plan.name,
                              "\", ", attempt.cap_bytes, " bytes, ", attempt.threads, " threads\n");
    metrics_.Report();
    return absl::OkStatus();
  }

  // Whether another step is made. False: what there is is exported.
  absl::StatusOr<bool> GoesOn() {
    const Trainer& trainer = *run_.trainer;
    if (trainer.global_step() >= trainer.max_steps() || checkpoints_.StopsEarly()) return false;
    const link::Command command =
        stop_requested_ ? link::Command::kCheckpointAndStop : run_.link.command();
    const bool trained = trainer.global_step() > run_.attempt.begin_step;
    if (command == link::Command::kExportAndStop && trained) {
      std::cerr << "cancelled after step " << trainer.global_step() << ": it is exported\n";
      RETURN_IF_ERROR(SaveLast());
      return false;
    }
    RETURN_IF_ERROR(Obey(command));
    return true;
  }

  // A run that saves does so at its end, wherever that is.
  absl::Status SaveLast() {
    const TrainingOptions& training = run_.attempt.training;
    const bool saves = training.save_strategy == Strategy::kEpoch ||
                       (training.save_strategy == Strategy::kSteps && training.save_steps > 0);
    return saves && !checkpoints_.saved() ? checkpoints_.Save() : absl::OkStatus();
  }

  absl::Status Obey(link::Command command) {
    if (command == link::Command::kNone) return ChangePlan();
    if (command == link::Command::kCheckpointAndStop && !checkpoints_.saved()) {
      RETURN_IF_ERROR(checkpoints_.Save());
    }
    return absl::CancelledError(absl::StrCat("stopped after step ", run_.trainer->global_step()));
  }

  absl::Status ChangePlan() {
    const std::optional<PlanOrder> order = run_.link.TakePlanOrder();
    return order.has_value() ? GoTo(*order).status() : absl::OkStatus();
  }

  // Whether its plan is in force then.
  absl::StatusOr<bool> GoTo(const PlanOrder& order) {
    ASSIGN_OR_RETURN(const PlanAnswer answer, run_.trainer->ChangePlan(order));
    const std::string what = answer.refusal.empty() ? absl::StrCat(answer.current_bytes, " of ",
                                                                   order.cap_bytes, " bytes")
                                                    : absl::StrCat("refused, ", answer.refusal);
    std::cerr << absl::StrCat("after step ", answer.global_step, " to plan \"", order.plan.name,
                              "\": ", what, "\n");
    if (answer.refusal.empty()) RETURN_IF_ERROR(BeginLooks());
    run_.link.AnswerPlanOrder(answer);
    metrics_.Report();
    return answer.refusal.empty();
  }

  // Of the plan that has just come into force.
  absl::Status BeginLooks() {
    planned_at_ = run_.trainer->global_step();
    run_.looks.clear();
    return LookAtMemory();
  }

  // If a look is due.
  absl::Status LookAtMemory() {
    const int64_t steps = run_.trainer->global_step() - planned_at_;
    if (!program::IsLookDue(steps)) return absl::OkStatus();
    const Memory memory = run_.trainer->memory();
    program::MemoryLook& look = run_.looks.emplace_back();
    look.steps = steps;
    look.counted_bytes = memory.current_bytes + memory.beside_bytes;
    return execute::CatchTorch(
        [&] { look.seen_bytes = run_.attempt.unseen_bytes + run_.device.SeenBytes(); });
  }

  absl::Status Step() {
    const TrainingOptions& training = run_.attempt.training;
    RETURN_IF_ERROR(MeasureDrift());
    ASSIGN_OR_RETURN(const StepResult step, Train());
    RETURN_IF_ERROR(metrics_.Log(step));
    if (IsDue(training.logging_strategy, training.logging_steps)) metrics_.Tell();
    if (run_.trainer->has_evaluation_set() && IsDue(training.eval_strategy, training.eval_steps)) {
      RETURN_IF_ERROR(evaluations_.Evaluate());
    }
    RETURN_IF_ERROR(LookAtMemory());  // It is judged by who is there when it is reported.
    metrics_.Report();
    const bool due = IsDue(training.save_strategy, training.save_steps);
    return due && !checkpoints_.saved() ? checkpoints_.Save() : absl::OkStatus();
  }

  // Measures the gradient of the step that comes, if that is due.
  absl::Status MeasureDrift() {
    Trainer& trainer = *run_.trainer;
    const int64_t step = trainer.global_step() + 1;
    if (trainer.is_exact() || !drift_.IsDue(step)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Drift drift, trainer.MeasureDrift());
    drift_.measured = step;
    for (const auto& [kind, found] : drift.kinds) run_.progress.drift[kind] = found;
    run_.progress.drift_not_measured = drift.not_measured;
    metrics_.Tell(drift);
    return absl::OkStatus();
  }

  absl::StatusOr<StepResult> Train() {
    const Clock::time_point begin = Clock::now();
    Trainer& trainer = *run_.trainer;
    ASSIGN_OR_RETURN(StepResult step, AccumulateGradients());
    RETURN_IF_ERROR(trainer.ApplyGradients(step));
    TrainingProgress& progress = run_.progress;
    progress.global_step = trainer.global_step();
    progress.loss = step.loss;
    progress.grad_norm = step.gradient_norm;
    progress.learning_rate = step.learning_rate;
    progress.epoch = trainer.epochs_done();
    progress.num_tokens = trainer.num_tokens();
    progress.step_seconds = SecondsSince(begin);
    progress.tokens_per_second = static_cast<double>(step.tokens) / progress.step_seconds;
    return step;
  }

  // A step that does not fit is made again under a smaller plan, as long as there is one: of the
  // same rows, with the same random numbers.
  absl::StatusOr<StepResult> AccumulateGradients() {
    Trainer& trainer = *run_.trainer;
    while (true) {
      absl::StatusOr<StepResult> step = trainer.AccumulateGradients();
      if (!absl::IsResourceExhausted(step.status()) || !trainer.can_repeat_step()) return step;
      RETURN_IF_ERROR(run_.device.Synchronize());  // What it had begun may still write.
      const Shortage shortage = {.global_step = trainer.global_step(),
                                 .message = std::string(step.status().message())};
      std::cerr << absl::StrCat("step ", shortage.global_step + 1,
                                " does not fit: ", shortage.message, "\n");
      const std::optional<PlanOrder> order = run_.link.AskForSmallerPlan(shortage);
      if (!order.has_value()) {
        RETURN_IF_ERROR(Obey(run_.link.command()));
        return step;
      }
      ASSIGN_OR_RETURN(const bool changed, GoTo(*order));
      if (!changed) return step;
    }
  }

  // At the end of the run as well, unless it is never.
  bool IsDue(Strategy strategy, int64_t every) const {
    const int64_t step = run_.progress.global_step;
    const bool end = step == run_.trainer->max_steps();
    if (strategy == Strategy::kSteps) return every > 0 && (end || step % every == 0);
    return strategy == Strategy::kEpoch && (end || run_.trainer->cursor().micro_batch == 0);
  }

  Run run_;
  const std::atomic<bool>& stop_requested_;
  int64_t planned_at_ = 0;  // The step behind which the plan in force begins.
  DriftSchedule drift_;
  RunMetrics metrics_{run_};
  RunCheckpoints checkpoints_{run_, metrics_};
  RunEvaluations evaluations_{run_, metrics_, checkpoints_};
  RunOutput output_{run_, evaluations_};
};

AttemptResult Attempt::Result(const absl::Status& status) const {
  AttemptResult result;
  result.progress = run_.progress;
  result.measured_peak_bytes = output_.peak_before_merge();
  if (run_.trainer != nullptr) {
    result.measured_peak_bytes =
        std::max(result.measured_peak_bytes, run_.trainer->memory().peak_bytes);
  }
  if (status.ok()) {
    result.outcome = AttemptResult::Outcome::kSucceeded;
    output_.Tell(result);
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
  Attempt running(attempt, device, link, stop_requested);
  const absl::Status status = running.Go();
  return running.Result(status.ok() ? status : running.CauseOf(status));
}

}  // namespace snug::train

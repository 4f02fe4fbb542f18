#include "server/job/check_training.h"

#include <algorithm>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "server/job/check_schedule.h"
#include "server/plan/planner.h"
#include "worker/program/eval_metrics.h"
#include "worker/program/training_mode.h"

namespace snug::server {
namespace {

using v1::JobSpec;
using v1::TrainingSpec;

// One AdamW under the names that it goes by; the implementation is this one's own in any case.
constexpr const char* kAdamWNames[] = {"adamw",    "adamw_torch",      "adamw_torch_fused",
                                       "adamw_hf", "adamw_apex_fused", "adamw_torch_xla"};
// The same with its moments in 8 bits, as bitsandbytes has them.
constexpr const char* kCodedAdamWNames[] = {"adamw_8bit", "adamw_bnb_8bit"};

double LearningRate(const TrainingSpec& training, bool lora) {
  if (training.has_learning_rate()) return training.learning_rate();
  return lora ? 2e-4 : 1e-5;
}

// Without a strategy the steps that are given say it.
TrainingSpec::Strategy Effective(TrainingSpec::Strategy given, int64_t steps) {
  if (given != TrainingSpec::STRATEGY_UNSPECIFIED) return given;
  return steps > 0 ? TrainingSpec::STRATEGY_STEPS : TrainingSpec::STRATEGY_NO;
}

// Whether evaluations come during the run, not only at its end.
bool EvaluatesOnTheWay(const TrainingSpec& training) {
  const TrainingSpec::Strategy strategy =
      Effective(training.eval_strategy(), training.eval_steps());
  return strategy == TrainingSpec::STRATEGY_STEPS || strategy == TrainingSpec::STRATEGY_EPOCH;
}

void CheckSteps(const TrainingSpec& training, Checker& check) {
  if (training.has_num_train_epochs())
    check.Positive("training.num_train_epochs", training.num_train_epochs(), 1e6);
  check.Integer("training.max_steps", training.max_steps(), 0, kMaxSteps);
  if (training.has_per_device_train_batch_size() && training.per_device_train_batch_size() != kAuto)
    check.Integer("training.per_device_train_batch_size", training.per_device_train_batch_size(), 1,
                  kMaxBatchRows);
  if (training.has_gradient_accumulation_steps())
    check.Integer("training.gradient_accumulation_steps", training.gradient_accumulation_steps(), 1,
                  kMaxBatchRows);
  if (training.has_max_seq_length() && training.max_seq_length() != kAuto)
    check.Integer("training.max_seq_length", training.max_seq_length(), 2, kMaxSequenceTokens);
  check.Integer("training.warmup_steps", training.warmup_steps(), 0, kMaxSteps);
  check.Integer("training.eval_steps", training.eval_steps(), 0, kMaxSteps);
  check.Integer("training.save_steps", training.save_steps(), 0, kMaxSteps);
  if (training.has_save_total_limit())
    check.Integer("training.save_total_limit", training.save_total_limit(), 1, 1000);
  if (training.has_logging_steps())
    check.Integer("training.logging_steps", training.logging_steps(), 1, kMaxSteps);
  if (training.group_by_length() && training.packing())
    check.Add("training.group_by_length",
              "is for rows that stay apart; packing already fills its sequences: give one of them");
  if (training.has_seed()) check.Integer("training.seed", training.seed(), 0, INT64_MAX);
}

// A strategy and the number of steps that belongs to it.
void CheckStrategy(const char* what, TrainingSpec::Strategy strategy, int64_t steps,
                   Checker& check) {
  const std::string field = absl::StrCat("training.", what, "_strategy");
  const bool with_best = std::string(what) == "save";
  if (!TrainingSpec::Strategy_IsValid(strategy) ||
      (strategy == TrainingSpec::STRATEGY_BEST && !with_best))
    check.Add(field, with_best ? "no, steps, epoch or best" : "no, steps or epoch");
  if (strategy == TrainingSpec::STRATEGY_STEPS && steps == 0)
    check.Add(field, absl::StrCat("steps needs training.", what, "_steps"));
  if (steps > 0 && strategy != TrainingSpec::STRATEGY_STEPS &&
      strategy != TrainingSpec::STRATEGY_UNSPECIFIED)
    check.Add(absl::StrCat("training.", what, "_steps"),
              absl::StrCat("is for ", what, "_strategy steps"));
}

void CheckStrategies(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  CheckStrategy("eval", training.eval_strategy(), training.eval_steps(), check);
  CheckStrategy("save", training.save_strategy(), training.save_steps(), check);
  if (training.logging_strategy() != TrainingSpec::STRATEGY_STEPS)
    CheckStrategy("logging", training.logging_strategy(), training.logging_steps(), check);
  if (EvaluatesOnTheWay(training) && !Evaluates(spec))
    check.Add(training.eval_steps() > 0 ? "training.eval_steps" : "training.eval_strategy",
              "needs something to evaluate: give eval_dataset or eval_split");
}

void CheckBest(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  const std::string& metric = training.metric_for_best_model();
  if (!metric.empty() && !program::IsEvalMetric(metric))
    check.Add("training.metric_for_best_model",
              absl::StrCat("\"", metric, "\" is no metric of any task; those that there are: ",
                           program::EvalMetricNames(program::kEvalMetrics)));
  check.Integer("training.early_stopping_patience", training.early_stopping_patience(), 0, 1 << 20);
  check.Real("training.early_stopping_threshold", training.early_stopping_threshold(), 0.0, 1e30);
  const bool ready = EvaluatesOnTheWay(training) && Evaluates(spec);
  const char* needs = "needs evaluations on the way: give eval_strategy and an evaluation set";
  if (!ready && training.load_best_model_at_end())
    check.Add("training.load_best_model_at_end", needs);
  if (!ready && training.early_stopping_patience() > 0)
    check.Add("training.early_stopping_patience", needs);
  if (!ready && training.save_strategy() == TrainingSpec::STRATEGY_BEST)
    check.Add("training.save_strategy", needs);
  if (training.early_stopping_threshold() > 0.0 && training.early_stopping_patience() == 0)
    check.Add("training.early_stopping_threshold", "needs early_stopping_patience");
}

template <size_t kNames>
bool IsOneOf(const char* const (&names)[kNames], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

void CheckOptim(const std::string& optim, Checker& check) {
  if (optim.empty() || IsOneOf(kAdamWNames, optim) || IsOneOf(kCodedAdamWNames, optim)) return;
  if (optim.starts_with("paged_"))
    return check.Add("training.optim",
                     absl::StrCat("\"", optim, "\" moves moments between host and device as they ",
                                  "are touched; here a job's bytes are promised to it and stay: ",
                                  optim.ends_with("_8bit") ? "adamw_8bit" : "adamw_torch",
                                  ", with memory.optimizer: host where they shall lie there"));
  check.Add(
      "training.optim",
      absl::StrCat("\"", optim, "\" is not offered; the optimizer is AdamW, with moments in ",
                   "fp32 (adamw_torch, or another name of it: ", absl::StrJoin(kAdamWNames, ", "),
                   ") or in 8 bits (", absl::StrJoin(kCodedAdamWNames, ", "), ")"));
}

// A job file's 0 may be written 0.0.
void CheckDropout(const std::string& dropout, Checker& check) {
  double rate = 1.0;
  if (dropout.empty() || dropout == program::kModelDropout) return;
  if (absl::SimpleAtod(dropout, &rate) && rate == 0.0) return;
  check.Add("training.dropout",
            absl::StrCat("model (the rates of config.json) or 0, not \"", dropout, "\""));
}

void CheckOptimizer(const TrainingSpec& training, Checker& check) {
  check.Real("training.learning_rate", training.learning_rate(), 0.0, 1e3);
  check.Real("training.warmup_ratio", training.warmup_ratio(), 0.0, 1.0);
  check.Real("training.weight_decay", training.weight_decay(), 0.0, 1e3);
  check.Real("training.max_grad_norm", training.max_grad_norm(), 0.0, 1e30);
  check.Real("training.adam_beta1", training.adam_beta1(), 0.0, 1.0, /*open=*/true);
  check.Real("training.adam_beta2", training.adam_beta2(), 0.0, 1.0, /*open=*/true);
  if (training.has_adam_epsilon() && !(training.adam_epsilon() > 0.0))
    check.Add("training.adam_epsilon", "must be above 0");
  check.Real("training.neftune_noise_alpha", training.neftune_noise_alpha(), 0.0, 1e6);
  CheckOptim(training.optim(), check);
  CheckDropout(training.dropout(), check);
  check.Real("training.label_smoothing_factor", training.label_smoothing_factor(), 0.0, 1.0,
             /*open=*/true);
}

// As transformers' field, of which one is offered.
void CheckReports(const TrainingSpec& training, Checker& check) {
  constexpr const char* kField = "training.report_to";
  for (const std::string& name : training.report_to()) {
    if (name == "tensorboard" || (name == "none" && training.report_to_size() == 1)) continue;
    if (name == "none")
      check.Add(kField, "none stands alone");
    else if (name == "wandb" || name == "mlflow")
      check.Add(kField, absl::StrCat("tensorboard or none, not \"", name, "\": snug ",
                                     "export-metrics JOB --to ", name,
                                     " DIR writes its format, of a job that runs or has ended"));
    else
      check.Add(kField, absl::StrCat("tensorboard or none, not \"", name, "\"; snug ",
                                     "export-metrics writes for wandb and mlflow"));
  }
}

void CheckSamples(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  if (!training.sample_prompts().empty() && !Evaluates(spec))
    check.Add("training.sample_prompts",
              "are answered at evaluations: give eval_dataset or eval_split");
  if (training.sample_prompts_size() > kMaxSamplePrompts)
    check.Add("training.sample_prompts", absl::StrCat(training.sample_prompts_size(),
                                                      " prompts; at most ", kMaxSamplePrompts));
  for (const std::string& prompt : training.sample_prompts()) {
    if (prompt.empty()) check.Add("training.sample_prompts", "holds an empty prompt");
    if (static_cast<int64_t>(prompt.size()) > kMaxSamplePromptBytes)
      check.Add("training.sample_prompts", absl::StrCat("a prompt of ", prompt.size(),
                                                        " bytes; at most ", kMaxSamplePromptBytes));
  }
  if (training.max_seq_length() > 0 && !training.sample_prompts().empty() &&
      spec.task() != JobSpec::TASK_SEQ2SEQ_LM &&
      training.sample_max_new_tokens() >= training.max_seq_length())
    check.Add("training.sample_max_new_tokens", "a prompt with its answer must fit max_seq_length");
  if (training.has_sample_max_new_tokens())
    check.Integer("training.sample_max_new_tokens", training.sample_max_new_tokens(), 1,
                  kMaxSampleTokens);
  check.Real("training.sample_temperature", training.sample_temperature(), 0.0, 100.0);
  if (training.has_sample_top_p())
    check.Positive("training.sample_top_p", training.sample_top_p(), 1.0);
}

void CheckGeneration(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  if (training.predict_with_generate() && !Evaluates(spec))
    check.Add("training.predict_with_generate",
              "answers are generated at evaluations: give eval_dataset or eval_split");
  if (training.has_generation_max_length())
    check.Integer("training.generation_max_length", training.generation_max_length(), 1,
                  kMaxSampleTokens);
}

}  // namespace

void CheckTraining(const JobSpec& spec, Checker& check) {
  const TrainingSpec& training = spec.training();
  CheckSteps(training, check);
  CheckStrategies(spec, check);
  CheckBest(spec, check);
  CheckOptimizer(training, check);
  CheckSchedule(training, LearningRate(training, spec.method() == JobSpec::METHOD_LORA), check);
  CheckSamples(spec, check);
  CheckGeneration(spec, check);
  CheckReports(training, check);
  if (!TrainingSpec::Precision_IsValid(training.precision()))
    check.Add("training.precision", "fp32 or bf16");
}

void FillTraining(TrainingSpec& training, bool lora, int64_t model_limit_tokens) {
  constexpr int64_t kDefaultSequenceTokens = 2048;
  constexpr int32_t kGenerationTokens = 128;
  if (training.max_steps() == 0 && !training.has_num_train_epochs())
    training.set_num_train_epochs(1.0);
  if (!training.has_per_device_train_batch_size()) training.set_per_device_train_batch_size(8);
  if (!training.has_gradient_accumulation_steps()) training.set_gradient_accumulation_steps(1);
  training.set_learning_rate(LearningRate(training, lora));
  if (training.lr_scheduler_type() == TrainingSpec::LR_SCHEDULER_TYPE_UNSPECIFIED)
    training.set_lr_scheduler_type(TrainingSpec::LR_SCHEDULER_TYPE_COSINE);
  if (!training.has_max_grad_norm()) training.set_max_grad_norm(1.0);
  if (!training.has_max_seq_length())
    training.set_max_seq_length(
        static_cast<int32_t>(std::min(kDefaultSequenceTokens, model_limit_tokens)));
  if (!training.has_packing()) training.set_packing(!training.group_by_length());
  if (training.precision() == TrainingSpec::PRECISION_UNSPECIFIED)
    training.set_precision(TrainingSpec::PRECISION_FP32);
  if (!training.has_seed()) training.set_seed(42);
  training.set_eval_strategy(Effective(training.eval_strategy(), training.eval_steps()));
  training.set_save_strategy(Effective(training.save_strategy(), training.save_steps()));
  if (training.logging_strategy() == TrainingSpec::STRATEGY_UNSPECIFIED)
    training.set_logging_strategy(TrainingSpec::STRATEGY_STEPS);
  if (!training.has_save_total_limit()) training.set_save_total_limit(2);
  if (!training.has_logging_steps()) training.set_logging_steps(1);
  if (!training.has_adam_beta1()) training.set_adam_beta1(0.9);
  if (!training.has_adam_beta2()) training.set_adam_beta2(0.999);
  if (!training.has_adam_epsilon()) training.set_adam_epsilon(1e-8);
  if (training.optim().empty()) training.set_optim("adamw_torch");
  if (training.metric_for_best_model().empty()) training.set_metric_for_best_model("eval_loss");
  if (!training.has_greater_is_better())
    training.set_greater_is_better(
        program::GreaterIsBetter(program::WithoutEvalPrefix(training.metric_for_best_model())));
  if (training.predict_with_generate() && !training.has_generation_max_length())
    training.set_generation_max_length(kGenerationTokens);
  if (training.sample_prompts().empty()) return;
  if (!training.has_sample_max_new_tokens()) training.set_sample_max_new_tokens(64);
  if (!training.has_sample_top_p()) training.set_sample_top_p(1.0);
}

}  // namespace snug::server

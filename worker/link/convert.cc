#include "worker/link/convert.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/program/eval_metrics.h"
#include "worker/program/planning/exact_step.h"

namespace snug::link {
namespace {

train::Schedule ScheduleFrom(v1::TrainingSpec::LrSchedulerType type) {
  switch (type) {
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_LINEAR:
      return train::Schedule::kLinear;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_CONSTANT:
      return train::Schedule::kConstant;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_CONSTANT_WITH_WARMUP:
      return train::Schedule::kConstantWithWarmup;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_MIN_LR:
      return train::Schedule::kCosineWithMinLr;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_RESTARTS:
      return train::Schedule::kCosineWithRestarts;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_POLYNOMIAL:
      return train::Schedule::kPolynomial;
    case v1::TrainingSpec::LR_SCHEDULER_TYPE_WSD:
      return train::Schedule::kWarmupStableDecay;
    default:
      return train::Schedule::kCosine;
  }
}

train::ScheduleOptions::Shape ShapeFrom(const std::string& name) {
  using Shape = train::ScheduleOptions::Shape;
  if (name == "linear") return Shape::kLinear;
  return name == "cosine" ? Shape::kCosine : Shape::kOneMinusSqrt;
}

train::ScheduleOptions ScheduleOptionsFrom(const v1::TrainingSpec& from, double learning_rate) {
  const v1::LrSchedulerKwargs& kwargs = from.lr_scheduler_kwargs();
  train::ScheduleOptions to;
  if (from.lr_scheduler_type() == v1::TrainingSpec::LR_SCHEDULER_TYPE_COSINE_WITH_RESTARTS)
    to.num_cycles = 1.0;
  if (kwargs.has_num_cycles()) to.num_cycles = kwargs.num_cycles();
  if (kwargs.has_min_lr()) to.min_lr_rate = kwargs.min_lr() / learning_rate;
  if (kwargs.has_min_lr_rate()) to.min_lr_rate = kwargs.min_lr_rate();
  if (kwargs.has_lr_end()) to.lr_end = kwargs.lr_end();
  if (kwargs.has_power()) to.power = kwargs.power();
  if (kwargs.has_num_stable_steps()) to.num_stable_steps = kwargs.num_stable_steps();
  to.num_decay_steps = kwargs.num_decay_steps();
  if (!kwargs.warmup_type().empty()) to.warmup_type = ShapeFrom(kwargs.warmup_type());
  if (!kwargs.decay_type().empty()) to.decay_type = ShapeFrom(kwargs.decay_type());
  to.min_lr_ratio = kwargs.min_lr_ratio();
  return to;
}

// A tool that runs without a daemon may give the steps alone.
train::Strategy StrategyFrom(v1::TrainingSpec::Strategy strategy) {
  switch (strategy) {
    case v1::TrainingSpec::STRATEGY_NO:
      return train::Strategy::kNo;
    case v1::TrainingSpec::STRATEGY_EPOCH:
      return train::Strategy::kEpoch;
    case v1::TrainingSpec::STRATEGY_BEST:
      return train::Strategy::kBest;
    default:
      return train::Strategy::kSteps;
  }
}

train::BestOptions BestFrom(const v1::TrainingSpec& from) {
  train::BestOptions to;
  if (!from.metric_for_best_model().empty())
    to.metric = program::WithoutEvalPrefix(from.metric_for_best_model());
  to.greater_is_better =
      from.has_greater_is_better() ? from.greater_is_better() : program::GreaterIsBetter(to.metric);
  to.load_at_end = from.load_best_model_at_end();
  to.patience = from.early_stopping_patience();
  to.threshold = from.early_stopping_threshold();
  return to;
}

program::Quantization QuantizationFrom(v1::JobSpec::Quantization kind) {
  if (kind == v1::JobSpec::QUANTIZATION_NF4) return program::Quantization::kNf4;
  return kind == v1::JobSpec::QUANTIZATION_INT8 ? program::Quantization::kInt8
                                                : program::Quantization::kNone;
}

v1::WorkerResult::Outcome OutcomeTo(train::AttemptResult::Outcome outcome) {
  switch (outcome) {
    case train::AttemptResult::Outcome::kSucceeded:
      return v1::WorkerResult::OUTCOME_SUCCEEDED;
    case train::AttemptResult::Outcome::kStopped:
      return v1::WorkerResult::OUTCOME_STOPPED;
    case train::AttemptResult::Outcome::kFailed:
      break;
  }
  return v1::WorkerResult::OUTCOME_FAILED;
}

v1::WorkerResult::FailureClass FailureClassTo(train::FailureClass failure_class) {
  switch (failure_class) {
    case train::FailureClass::kOutOfMemory:
      return v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY;
    case train::FailureClass::kInfrastructure:
      return v1::WorkerResult::FAILURE_CLASS_INFRASTRUCTURE;
    case train::FailureClass::kUser:
      break;
  }
  return v1::WorkerResult::FAILURE_CLASS_USER;
}

v1::JobOutput OutputTo(const train::AttemptResult& from) {
  v1::JobOutput to;
  to.set_loss(from.verified_loss);
  if (from.merged_loss.has_value()) to.set_merged_loss(*from.merged_loss);
  to.set_merge_error(from.merge_error);
  for (const checkpoint::ReaderReport& report : from.readers) {
    v1::ReaderReport& reader = *to.add_readers();
    reader.set_reader(report.reader);
    reader.set_loads(report.loads);
    reader.set_modules(report.modules);
    reader.set_of_modules(report.of_modules);
    reader.set_notes(report.notes);
  }
  return to;
}

}  // namespace

// The daemon fills every default in; a tool that runs without one may leave fields out, which then
// keep the struct's own.
train::TrainingOptions TrainingFrom(const v1::JobSpec& spec) {
  const v1::TrainingSpec& from = spec.training();
  train::TrainingOptions to;
  to.augmentation =
      program::AugmentationOfName(spec.image_augmentation()).value_or(program::Augmentation::kNone);
  if (from.has_num_train_epochs()) to.epochs = from.num_train_epochs();
  to.max_steps = from.max_steps();
  if (from.has_per_device_train_batch_size()) to.batch_rows = from.per_device_train_batch_size();
  if (from.has_gradient_accumulation_steps()) to.accumulation = from.gradient_accumulation_steps();
  if (from.has_learning_rate()) to.learning_rate = from.learning_rate();
  to.schedule = ScheduleFrom(from.lr_scheduler_type());
  to.warmup_ratio = from.warmup_ratio();
  to.warmup_steps = from.warmup_steps();
  to.weight_decay = from.weight_decay();
  if (from.has_max_grad_norm()) to.max_grad_norm = from.max_grad_norm();
  to.max_seq_length = from.max_seq_length();
  if (from.has_packing()) to.packing = from.packing();
  if (from.has_seed()) to.seed = static_cast<uint64_t>(from.seed());
  to.eval_steps = from.eval_steps();
  to.save_steps = from.save_steps();
  if (from.has_save_total_limit()) to.save_total_limit = from.save_total_limit();
  if (from.has_logging_steps()) to.logging_steps = from.logging_steps();
  if (from.has_adam_beta1()) to.beta1 = from.adam_beta1();
  if (from.has_adam_beta2()) to.beta2 = from.adam_beta2();
  if (from.has_adam_epsilon()) to.epsilon = from.adam_epsilon();
  to.schedule_options = ScheduleOptionsFrom(from, to.learning_rate);
  to.tf32 = from.tf32();
  to.neftune_alpha = from.neftune_noise_alpha();
  if (spec.has_mlm_probability()) to.mlm_probability = spec.mlm_probability();
  to.group_by_length = from.group_by_length();
  to.eval_strategy = StrategyFrom(from.eval_strategy());
  to.save_strategy = StrategyFrom(from.save_strategy());
  to.logging_strategy = StrategyFrom(from.logging_strategy());
  to.best = BestFrom(from);
  if (!from.sample_prompts().empty()) to.samples.max_new_tokens = from.sample_max_new_tokens();
  if (from.predict_with_generate()) to.generation_max_length = from.generation_max_length();
  to.samples.temperature = from.sample_temperature();
  if (from.has_sample_top_p()) to.samples.top_p = from.sample_top_p();
  to.tensorboard = std::find(from.report_to().begin(), from.report_to().end(), "tensorboard") !=
                   from.report_to().end();
  return to;
}

int64_t DriftStepsFrom(const v1::JobSpec& spec) {
  const v1::MemorySpec& memory = spec.memory();
  return memory.has_drift_steps() ? memory.drift_steps() : program::kLeastDriftSteps;
}

program::TaskChoice TaskFrom(const v1::JobSpec& spec) {
  program::TaskChoice choice = {.task = {}, .labels = spec.num_labels()};
  if (spec.task() == v1::JobSpec::TASK_CAUSAL_LM) choice.task = program::Task::kCausalLm;
  if (spec.task() == v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION)
    choice.task = program::Task::kSequenceClassification;
  if (spec.task() == v1::JobSpec::TASK_TOKEN_CLASSIFICATION)
    choice.task = program::Task::kTokenClassification;
  if (spec.task() == v1::JobSpec::TASK_SEQ2SEQ_LM) choice.task = program::Task::kSeq2SeqLm;
  if (spec.task() == v1::JobSpec::TASK_MASKED_LM) choice.task = program::Task::kMaskedLm;
  if (spec.task() == v1::JobSpec::TASK_IMAGE_CLASSIFICATION)
    choice.task = program::Task::kImageClassification;
  choice.problem = program::ProblemOfName(spec.problem_type());
  return choice;
}

program::TrainingMode ModeFrom(const v1::JobSpec& spec) {
  program::TrainingMode mode;
  mode.lora = spec.method() == v1::JobSpec::METHOD_LORA;
  mode.compute = spec.training().precision() == v1::TrainingSpec::PRECISION_BF16
                     ? program::DType::kBF16
                     : program::DType::kF32;
  if (spec.training().optim().ends_with("_8bit")) mode.moments = program::MomentKind::k8Bit;
  mode.release_gradients = spec.memory().gradients() == v1::MemorySpec::GRADIENTS_RELEASED;
  const std::string& dropout = spec.training().dropout();
  mode.dropout = dropout.empty() || dropout == program::kModelDropout;
  mode.label_smoothing = spec.training().label_smoothing_factor();
  mode.optimizer_on_host = spec.memory().optimizer() == v1::MemorySpec::OPTIMIZER_STATE_HOST;
  mode.reversible = spec.reversible() == program::kNativeStreams;
  mode.quantization = QuantizationFrom(spec.quantization());
  if (spec.lora().has_r()) mode.adapter.rank = spec.lora().r();
  if (spec.lora().has_lora_alpha()) mode.adapter.alpha = spec.lora().lora_alpha();
  mode.adapter.dropout = spec.lora().lora_dropout();
  mode.adapter.rslora = spec.lora().use_rslora();
  if (!spec.lora().target_modules().empty())
    mode.adapter.target_modules.assign(spec.lora().target_modules().begin(),
                                       spec.lora().target_modules().end());
  const v1::LoraSpec& lora = spec.lora();
  mode.adapter.rank_pattern = {lora.rank_pattern().begin(), lora.rank_pattern().end()};
  mode.adapter.alpha_pattern = {lora.alpha_pattern().begin(), lora.alpha_pattern().end()};
  mode.adapter.exclude_modules = {lora.exclude_modules().begin(), lora.exclude_modules().end()};
  mode.adapter.layers_to_transform = {lora.layers_to_transform().begin(),
                                      lora.layers_to_transform().end()};
  mode.adapter.modules_to_save = {lora.modules_to_save().begin(), lora.modules_to_save().end()};
  return mode;
}

namespace {

absl::StatusOr<program::SiteStash> WithOptions(program::Stash kind,
                                               const v1::StashOptions& options) {
  if (kind == program::Stash::kSampled) {
    const std::optional<double> rho =
        options.has_rho() ? std::optional(options.rho()) : std::nullopt;
    return program::SampledBy(rho, options.estimator());
  }
  program::SiteStash stash(kind, options.rows());
  stash.ahead = options.ahead();
  return stash;
}

}  // namespace

absl::StatusOr<program::NamedPlan> PlanFrom(const v1::Plan& from) {
  program::NamedPlan plan;
  plan.name = from.name();
  for (const v1::Recipe& recipe : from.recipes()) {
    program::NamedRecipe& named = plan.recipes.emplace_back();
    for (const v1::SitesOfKind& of_kind : recipe.kinds()) {
      const std::optional<program::Stash> stash = program::StashOfName(of_kind.kind());
      for (const std::string& site : of_kind.sites()) {
        if (!stash.has_value())
          return absl::InvalidArgumentError(
              absl::StrCat("plan ", from.name(), ": this version does not know how to keep ", site,
                           " by \"", of_kind.kind(), "\""));
        ASSIGN_OR_RETURN(named.stashes[site], WithOptions(*stash, of_kind.options()));
      }
    }
  }
  plan.layer_recipe.assign(from.block_recipe().begin(), from.block_recipe().end());
  return plan;
}

program::TapeKey KeyFrom(const v1::TapeKey& from) {
  program::TapeKey key = {.tokens = from.tokens(),
                          .documents = from.documents(),
                          .longest_document = from.longest_document(),
                          .source_tokens = from.source_tokens(),
                          .longest_source = from.longest_source()};
  for (size_t i = 0; i < key.merged.size() && i < static_cast<size_t>(from.merged_size()); ++i)
    key.merged[i] = from.merged(static_cast<int>(i));
  return key;
}

program::Components BytesFrom(const v1::Plan& plan) {
  const v1::MemoryComponents& from = plan.memory();
  program::Components to;
  to.context = from.context_bytes();
  to.weights = from.weights_bytes();
  to.adapter = from.adapter_bytes();
  to.gradients = from.gradients_bytes();
  to.optimizer = from.optimizer_bytes();
  to.inputs = from.inputs_bytes();
  to.data = from.data_bytes();
  to.arena = plan.arena_bytes();
  to.host = plan.host_bytes();
  return to;
}

train::AnswerOptions AnswersFrom(const v1::SampleOrder& from) {
  const v1::SampleSettings& settings = from.settings();
  return {.sampling = {.max_new_tokens = settings.max_new_tokens(),
                       .temperature = settings.temperature(),
                       .top_p = settings.top_p()},
          .seed = static_cast<uint64_t>(settings.seed()),
          .adapter = from.adapter(),
          .checkpoint = from.checkpoint(),
          .socket = from.socket()};
}

absl::StatusOr<train::PlanOrder> OrderFrom(const v1::PlanOrder& from) {
  absl::StatusOr<program::NamedPlan> plan = PlanFrom(from.plan());
  if (!plan.ok()) return plan.status();
  return train::PlanOrder{.number = from.number(),
                          .plan = *std::move(plan),
                          .head_rows = from.plan().head_rows(),
                          .cap_bytes = from.bytes(),
                          .promised = BytesFrom(from.plan())};
}

v1::WorkerEvent::PlanChanged AnswerTo(const train::PlanAnswer& from) {
  v1::WorkerEvent::PlanChanged to;
  to.set_number(from.number);
  to.set_global_step(from.global_step);
  to.set_current_bytes(from.current_bytes);
  to.set_refusal(from.refusal);
  return to;
}

v1::MemoryLook LookTo(const program::MemoryLook& from) {
  v1::MemoryLook to;
  to.set_steps(from.steps);
  to.set_counted_bytes(from.counted_bytes);
  to.set_seen_bytes(from.seen_bytes);
  return to;
}

void DriftTo(const train::TrainingProgress& progress, v1::WorkerEvent::Step& step) {
  for (const auto& [kind, from] : progress.drift) {
    v1::Drift& to = (*step.mutable_drift())[kind];
    to.set_cosine(from.cosine);
    to.set_relative_error(from.relative_error);
    to.set_global_step(from.global_step);
    to.set_tokens(from.tokens);
  }
  step.set_drift_not_measured(progress.drift_not_measured);
}

v1::Progress ProgressTo(const train::TrainingProgress& from) {
  v1::Progress to;
  to.set_global_step(from.global_step);
  to.set_max_steps(from.max_steps);
  to.set_loss(from.loss);
  to.set_learning_rate(from.learning_rate);
  to.set_grad_norm(from.grad_norm);
  to.set_epoch(from.epoch);
  to.set_num_tokens(from.num_tokens);
  to.set_tokens_per_second(from.tokens_per_second);
  to.set_step_seconds(from.step_seconds);
  if (from.eval_loss.has_value()) to.set_eval_loss(*from.eval_loss);
  for (const auto& [name, value] : from.eval_figures)
    (*to.mutable_eval_metrics())[absl::StrCat("eval_", name)] = value;
  to.set_resumed_from_step(from.resumed_from_step);
  return to;
}

v1::WorkerResult ResultTo(const train::AttemptResult& from) {
  v1::WorkerResult to;
  to.set_outcome(OutcomeTo(from.outcome));
  if (from.outcome == train::AttemptResult::Outcome::kFailed) {
    to.set_failure_class(FailureClassTo(from.failure_class));
    to.mutable_error()->set_reason(from.reason);
    to.mutable_error()->set_message(from.message);
    to.mutable_error()->set_field(from.field);
  }
  *to.mutable_progress() = ProgressTo(from.progress);
  to.set_measured_peak_bytes(from.measured_peak_bytes);
  to.set_output_dir(from.output_dir);
  to.set_verified_loss(from.verified_loss);
  if (from.outcome == train::AttemptResult::Outcome::kSucceeded)
    *to.mutable_output() = OutputTo(from);
  return to;
}

}  // namespace snug::link

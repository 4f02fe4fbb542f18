#include "worker/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/program/eval_metrics.h"
#include "worker/program/files/added_tokens.h"
#include "worker/program/stages.h"
#include "worker/train/schedule.h"

namespace snug::train {
namespace {

constexpr size_t kMaxNamedRows = 64;  // In a message; a packed batch can hold thousands.

// The first of them, by their numbers.
std::string NameRows(const MicroBatches& batches) {
  std::set<int64_t> named;
  size_t rows = 0;
  for (int64_t b = batches.range.begin; b < batches.range.end; ++b) {
    for (int64_t row : batches.plan.Batch(b)) {
      ++rows;
      named.insert(row);
      if (named.size() > kMaxNamedRows) named.erase(std::prev(named.end()));
    }
  }
  std::string text = absl::StrJoin(
      named, ", ", [&](std::string* out, int64_t row) { *out += batches.dataset.NameOf(row); });
  if (named.size() < rows) absl::StrAppend(&text, " and ", rows - named.size(), " more");
  return text;
}

// A loss or a norm, with the rows that gave it.
absl::Status CheckFinite(double value, const std::string& what, const MicroBatches& batches) {
  if (std::isfinite(value)) return absl::OkStatus();
  const std::string kind = batches.dataset.has_source_lines()
                               ? "samples "
                               : absl::StrCat("rows of the ", batches.set, ", from 0: ");
  return absl::OutOfRangeError(absl::StrCat(what, " is ", value, "; ", kind, NameRows(batches)));
}

// Who tokenised the rows and who makes the matrices grow must mean the same by the tokens' ids.
absl::Status CheckAddedTokens(const program::ModelConfig& config, const Dataset& dataset) {
  if (!config.adds_tokens() || dataset.first_added() == config.first_added) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("added_tokens: their ids begin at ", dataset.first_added(),
                   " in the prepared dataset, and at ", config.first_added, " in the model"));
}

// As many numbers for each document as the head has outputs, or a class.
absl::Status CheckTargets(const program::ModelConfig& config, const Dataset& dataset,
                          const char* set) {
  const int64_t wanted = config.has_targets() ? config.labels : 0;
  if (dataset.targets_per_row() == wanted) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "problem_type: ", program::NameOf(config.problem), " with num_labels ", config.labels,
      ", but the rows of the ", set, " have ", dataset.targets_per_row(), " numbers each"));
}

// Of each token a class below the head's count, or none.
absl::Status CheckTokenLabels(const program::ModelConfig& config, const Dataset& dataset,
                              const char* set) {
  for (int64_t row = 0; row < dataset.rows().size(); ++row) {
    for (int64_t t = 0; t < dataset.tokens(row); ++t) {
      const int32_t label = dataset.token_labels(row)[t];
      if (label == kNoTokenLabel || (label >= 0 && label < config.labels)) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("num_labels: row ", dataset.NameOf(row), " of the ", set, ", token ", t,
                       ", has class ", label, ", the head has ", config.labels));
    }
  }
  return absl::OkStatus();
}

// Images as the model reads them, for a model that does.
absl::Status CheckImages(const program::ModelConfig& config, const Dataset& dataset,
                         const char* set) {
  if (dataset.has_images() != config.of_images())
    return absl::FailedPreconditionError(
        absl::StrCat("task: ", program::NameOf(config.task), ", but the rows of the ", set,
                     dataset.has_images() ? " are images" : " are no images"));
  if (!config.of_images()) return absl::OkStatus();
  const bool same = dataset.image_size() == config.image_size &&
                    dataset.image_channels() == config.image_channels &&
                    dataset.rows().lengths().longest() == config.tokens_of_image() &&
                    dataset.rows().lengths().rows_of.size() == 1;
  if (same) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("dataset: images of the ", set, " are ", dataset.image_size(), " pixels wide, ",
                   "of ", dataset.image_channels(), " channels; the model reads ",
                   config.image_size, " of ", config.image_channels));
}

// A dataset of classes for who classifies, one of tokens for who predicts them.
absl::Status CheckLabels(const program::ModelConfig& config, const Dataset& dataset,
                         const char* set) {
  RETURN_IF_ERROR(CheckImages(config, dataset, set));
  if (dataset.is_masked() != (config.task == program::Task::kMaskedLm)) {
    return absl::FailedPreconditionError(
        absl::StrCat("task: ", program::NameOf(config.task), ", but the rows of the ", set,
                     dataset.is_masked() ? " are masked" : " name no mask token"));
  }
  const bool of_tokens = config.classifies() && !config.of_documents();
  if (dataset.has_documents() != config.of_documents() || dataset.has_token_labels() != of_tokens) {
    const bool classes = dataset.has_documents() || dataset.has_token_labels();
    return absl::FailedPreconditionError(
        absl::StrCat("task: ", program::NameOf(config.task), ", but the rows of the ", set,
                     !classes                     ? " have no classes"
                     : dataset.has_token_labels() ? " have classes of tokens"
                                                  : " have classes"));
  }
  if (of_tokens) return CheckTokenLabels(config, dataset, set);
  RETURN_IF_ERROR(CheckTargets(config, dataset, set));
  for (int64_t row = 0; dataset.has_labels() && row < dataset.rows().size(); ++row) {
    if (dataset.label(row) >= 0 && dataset.label(row) < config.labels) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("num_labels: row ", dataset.NameOf(row), " of the ", set, " has class ",
                     dataset.label(row), ", the head has ", config.labels));
  }
  return absl::OkStatus();
}

// A model that reads a source takes rows with one, in the order and the batches of rows alone.
absl::Status CheckSources(const program::ModelConfig& config, const Dataset& dataset,
                          const char* set, const TrainingOptions& options) {
  if (dataset.has_sources() != config.has_source())
    return absl::FailedPreconditionError(
        absl::StrCat("task: ", program::NameOf(config.task), ", but the rows of the ", set,
                     dataset.has_sources() ? " have sources" : " have no sources"));
  if (!config.has_source()) return absl::OkStatus();
  const std::pair<const char*, bool> others[] = {
      {"packing", options.packing},
      {"group_by_length", options.group_by_length},
      {"neftune_noise_alpha", options.neftune_alpha > 0.0}};
  for (const auto& [field, given] : others) {
    if (given)
      return absl::FailedPreconditionError(
          absl::StrCat("training.", field, ": not offered for task: seq2seq_lm"));
  }
  return absl::OkStatus();
}

// What the best evaluation is told by can be had of so many rows.
absl::Status CheckRanks(const program::ModelConfig& config, int64_t rows,
                        const TrainingOptions& options) {
  const bool ranked = options.best.metric == program::kSpearmanMetric;
  if (!ranked || program::HasRanks(rows, config.labels)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "training.metric_for_best_model: ", options.best.metric, " is of at most ",
      program::kMaxRankedNumbers, " numbers; the evaluation set has ", rows * config.labels));
}

program::TapeKey WorstOf(const program::ModelConfig& config, const Dataset& dataset,
                         const program::Batching& batching) {
  const program::TapeKey worst =
      program::WithStages(program::WorstBatch(dataset.rows().lengths(), batching), config);
  return dataset.has_sources() ? program::WithSources(worst, dataset.source_lengths(), batching)
                               : worst;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const AttemptOptions& attempt,
                                                         execute::Device& device) {
  std::unique_ptr<Trainer> trainer(new Trainer(attempt, device));
  ASSIGN_OR_RETURN(program::ModelConfig config, program::ReadModelConfig(attempt.model_dir));
  RETURN_IF_ERROR(program::AddTokens(attempt.model_dir, attempt.added_tokens, config));
  RETURN_IF_ERROR(program::ChooseTask(attempt.task, config));
  ASSIGN_OR_RETURN(trainer->program_, program::BuildProgram(config, attempt.mode));
  RETURN_IF_ERROR(trainer->LoadData());
  trainer->inputs_key_ =
      attempt.key.Joined(trainer->evaluation_key_).Joined(trainer->GenerationKey());
  ASSIGN_OR_RETURN(trainer->lowered_,
                   trainer->Lower(attempt.plan, attempt.head_rows, attempt.promised));
  RETURN_IF_ERROR(trainer->TakeMemory());
  return trainer;
}

absl::Status Trainer::LoadData() {
  const int64_t vocabulary = program_.config.vocabulary;
  const TrainingOptions& options = attempt_.training;
  ASSIGN_OR_RETURN(dataset_, Dataset::Open(attempt_.train_data, vocabulary, attempt_.train_file));
  RETURN_IF_ERROR(CheckAddedTokens(program_.config, *dataset_));
  RETURN_IF_ERROR(CheckLabels(program_.config, *dataset_, "dataset"));
  RETURN_IF_ERROR(CheckSources(program_.config, *dataset_, "dataset", options));
  const program::LengthCounts& lengths = dataset_->rows().lengths();
  const program::Batching batching = BatchingOf(options);
  max_steps_ = TotalSteps(lengths, options);
  walk_ = std::make_unique<BatchWalk>(dataset_->rows(), options);
  augmenter_.emplace(options.augmentation, program_.config, options.seed);
  data_bytes_ = program::DataBytes(lengths, {}, batching) + augmenter_->held_bytes() +
                program::SourceBytes(dataset_->source_lengths(), {});
  if (augmenter_->augments() && !dataset_->has_originals())
    return absl::FailedPreconditionError(
        absl::StrCat("image_augmentation: ", program::NameOf(options.augmentation),
                     ", but the dataset has no originals to take crops from"));
  evaluation_key_ = attempt_.key;
  if (!attempt_.prompts_file.empty()) {
    ASSIGN_OR_RETURN(prompts_, Prompts::Read(attempt_.prompts_file, vocabulary));
  }
  if (attempt_.eval_data.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(evaluation_, Dataset::Open(attempt_.eval_data, vocabulary, attempt_.eval_file));
  RETURN_IF_ERROR(CheckLabels(program_.config, *evaluation_, "evaluation set"));
  RETURN_IF_ERROR(CheckSources(program_.config, *evaluation_, "evaluation set", options));
  if (evaluation_->label_names() != dataset_->label_names())
    return absl::FailedPreconditionError(
        "label_names: the dataset and the evaluation set name other classes: give them");
  const int64_t evaluated = evaluation_->rows().size();
  RETURN_IF_ERROR(CheckRanks(program_.config, evaluated, options));
  evaluation_key_ = WorstOf(program_.config, *evaluation_, batching);
  data_bytes_ = program::DataBytes(lengths, evaluation_->rows().lengths(), batching) +
                augmenter_->held_bytes() +
                program::SourceBytes(dataset_->source_lengths(), evaluation_->source_lengths()) +
                program::EvaluationBytes(program_.config, evaluated);
  return absl::OkStatus();
}

absl::StatusOr<TokenMetrics> Trainer::RunMicroBatches(const program::Tape& tape,
                                                      const MicroBatches& batches,
                                                      EvaluationSums* sums) {
  const auto [begin, end] = batches.range;
  const Masking masking = {.probability = attempt_.training.mlm_probability,
                           .seed = attempt_.training.seed,
                           .epoch = batches.plan.epoch()};
  double weight = 0.0;
  for (int64_t b = begin; b < end; ++b) {
    weight += LossWeight(batches.dataset, batches.plan.Batch(b), masking);
  }
  const EpochImages images{*augmenter_, walk_->cursor().epoch};
  const bool augments = tape.training && augmenter_->augments();
  const RowDraws draws = {.masking = masking, .images = augments ? &images : nullptr};
  execute::StepScalars scalars{
      .loss_scale = weight > 0.0 ? 1.0 / weight : 0.0,
      .seed = attempt_.training.seed,
      .step = global_step_,
      .dropout = tape.training,
      .neftune_alpha = tape.training ? attempt_.training.neftune_alpha : 0.0};
  const bool trained_on = &batches.dataset == &*dataset_;
  const std::string what = tape.training
                               ? absl::StrCat("step ", global_step_ + 1, ": the loss")
                               : absl::StrCat("step ", global_step_, ": the loss of the ",
                                              trained_on ? "last training batch" : "evaluation");
  const auto update = [this](int32_t parameter, const execute::View& gradient) {
    return optimizer_->StepOne(parameter, gradient, global_step_ + 1,
                               LearningRate(attempt_.training, global_step_, max_steps_));
  };
  TokenMetrics metrics;
  execute::TokenSums tokens;
  for (int64_t b = begin; b < end; ++b) {
    ASSIGN_OR_RETURN(execute::Batch batch,
                     buffers_->Fill(batches.dataset, batches.plan.Batch(b), draws));
    if (sums == nullptr) batch.row_logits = nullptr;
    ASSIGN_OR_RETURN(const double share, executor_->Run(tape, *arena_, batch, scalars, update));
    MicroBatches one = batches;
    one.range = {b, b + 1};
    RETURN_IF_ERROR(CheckFinite(share, what, one));
    metrics.loss += share;
    tokens += executor_->token_sums();
    if (sums != nullptr) {
      ASSIGN_OR_RETURN(const Predictions found, buffers_->Found());
      sums->Add(found);
    }
    ++scalars.micro_batch;
    scalars.accumulate = true;
  }
  const auto trained = static_cast<double>(std::max<int64_t>(tokens.trained, 1));
  metrics.mean_token_accuracy = static_cast<double>(tokens.correct) / trained;
  metrics.entropy = tokens.entropy / trained;
  return metrics;
}

MicroBatches Trainer::OfTraining(BatchRange range) const {
  return {.dataset = *dataset_, .plan = walk_->plan(), .range = range, .set = "dataset"};
}

absl::StatusOr<StepResult> Trainer::AccumulateGradients() {
  StepResult result;
  result.micro_batches = walk_->NextStep();
  result.learning_rate = LearningRate(attempt_.training, global_step_, max_steps_);
  const MicroBatches batches = OfTraining(result.micro_batches);
  for (int64_t b = batches.range.begin; b < batches.range.end; ++b) {
    const MicroBatch rows = batches.plan.Batch(b);
    const program::TapeKey key = KeyOf(rows, dataset_->rows());
    result.tokens += key.tokens;
    result.samples += key.documents;
    for (const int64_t row : rows) result.tokens += dataset_->source_tokens(row);
  }
  ASSIGN_OR_RETURN(static_cast<TokenMetrics&>(result),
                   RunMicroBatches(lowered_.step, batches, /*sums=*/nullptr));
  ASSIGN_OR_RETURN(result.gradient_norm, optimizer_->GradientNorm());
  RETURN_IF_ERROR(
      CheckFinite(result.gradient_norm,
                  absl::StrCat("step ", global_step_ + 1, ": the norm of the gradients"), batches));
  return result;
}

bool Trainer::can_repeat_step() const {
  const auto& parameters = program_.parameters;
  return std::none_of(parameters.begin(), parameters.end(),
                      [](const program::Parameter& each) { return each.released; });
}

absl::Status Trainer::ApplyGradients(const StepResult& step) {
  RETURN_IF_ERROR(optimizer_->Step(global_step_ + 1, step.learning_rate, step.gradient_norm));
  RETURN_IF_ERROR(device_.Synchronize());  // So that it fails, and takes its time, in its own step.
  walk_->StepDone();
  ++global_step_;
  num_tokens_ += step.tokens;
  return absl::OkStatus();
}

absl::StatusOr<Evaluation> Trainer::Evaluate() {
  Evaluation evaluation;
  auto& tokens = static_cast<TokenMetrics&>(evaluation);
  if (!evaluation_.has_value()) {
    ASSIGN_OR_RETURN(tokens, RunMicroBatches(lowered_.evaluation, OfTraining(walk_->StepBefore()),
                                             /*sums=*/nullptr));
    return evaluation;
  }
  const EpochPlan plan = EpochPlan::OfEvaluation(evaluation_->rows(), attempt_.training);
  const MicroBatches batches{.dataset = *evaluation_,
                             .plan = plan,
                             .range = {0, plan.micro_batches()},
                             .set = "evaluation set"};
  const program::ModelConfig& config = program_.config;
  std::optional<EvaluationSums> sums;
  if (config.classifies()) sums.emplace(config, evaluation_->rows().size());
  ASSIGN_OR_RETURN(
      tokens, RunMicroBatches(lowered_.evaluation, batches, sums.has_value() ? &*sums : nullptr));
  if (sums.has_value()) evaluation.figures = sums->Metrics();
  if (!config.classifies()) evaluation.figures["mean_token_accuracy"] = tokens.mean_token_accuracy;
  if (AccuracyName(config) != nullptr) evaluation.figures["entropy"] = tokens.entropy;
  return evaluation;
}

void Trainer::ResumeAt(int64_t steps, DataCursor cursor, int64_t tokens) {
  global_step_ = steps;
  num_tokens_ = tokens;
  walk_.reset();  // Its plan is not to be beside the new one's.
  walk_ = std::make_unique<BatchWalk>(dataset_->rows(), attempt_.training, cursor);
}

}  // namespace snug::train

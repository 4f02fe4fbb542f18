// What a trainer's model writes: answers to prompts, and to the rows that are evaluated.
#include <utility>

#include "proto/snug/status_macros.h"
#include "worker/train/answer_scores.h"
#include "worker/train/generator.h"
#include "worker/train/sampling.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

// The tokens of a row's target that are trained.
std::vector<int32_t> TargetOf(const Dataset& dataset, int64_t row) {
  std::vector<int32_t> target;
  for (int64_t t = 0; t < dataset.tokens(row); ++t)
    if (dataset.weights(row)[t] != 0.0f) target.push_back(dataset.ids(row)[t]);
  return target;
}

}  // namespace

program::TapeKey Trainer::GenerationKey() const {
  program::TapeKey key;
  if (!prompts_.has_value()) return key;
  const TrainingOptions& options = attempt_.training;
  if (!prompts_->prompts().empty())
    key = program::GenerationKey(program_.config, prompts_->longest(),
                                 options.samples.max_new_tokens);
  if (!evaluation_.has_value() || options.generation_max_length == 0) return key;
  return key.Joined(program::GenerationKey(program_.config, evaluation_->source_lengths().longest(),
                                           options.generation_max_length));
}

absl::StatusOr<std::vector<Sample>> Trainer::AnswerPrompts() {
  std::vector<Sample> samples;
  if (!prompts_.has_value()) return samples;
  Generator generator(program_, lowered_.generation, *executor_, *arena_, *buffers_);
  for (const Prompt& prompt : prompts_->prompts()) {
    const auto number = static_cast<int64_t>(samples.size());
    ASSIGN_OR_RETURN(
        std::vector<int32_t> tokens,
        generator.Answer({.prompt = prompt.ids,
                          .options = attempt_.training.samples,
                          .stops = [this](int32_t token) { return prompts_->Stops(token); },
                          .uniform =
                              [&](int64_t token) {
                                return SampleUniform(attempt_.training.seed, global_step_, number,
                                                     token);
                              }}));
    samples.push_back({.step = global_step_,
                       .prompt = prompt.text,
                       .completion = prompts_->TextOf(tokens, /*begins=*/true),
                       .tokens = std::move(tokens)});
  }
  return samples;
}

absl::StatusOr<Figures> Trainer::ScoreAnswers() {
  const int64_t most = attempt_.training.generation_max_length;
  AnswerScores scores;
  if (!prompts_.has_value() || !evaluation_.has_value() || most == 0) return scores.Means();
  Generator generator(program_, lowered_.generation, *executor_, *arena_, *buffers_);
  for (int64_t row = 0; row < evaluation_->rows().size(); ++row) {
    const std::span<const int32_t> source = {evaluation_->source_ids(row),
                                             static_cast<size_t>(evaluation_->source_tokens(row))};
    ASSIGN_OR_RETURN(
        const std::vector<int32_t> answer,
        generator.Answer({.prompt = source,
                          .options = {.max_new_tokens = most},
                          .stops = [this](int32_t token) { return prompts_->Stops(token); },
                          .uniform = [](int64_t) { return 0.0; }}));
    scores.Add(prompts_->TextOf(answer, /*begins=*/true),
               prompts_->TextOf(TargetOf(*evaluation_, row), /*begins=*/true));
  }
  return scores.Means();
}

}  // namespace snug::train

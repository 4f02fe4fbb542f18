// A trainer measures how far the gradient of an inexact plan is from the exact one. It runs the
// plan's tape, whose gradients lie where the next step begins them anew, then the exact one, whose
// gradients are compared with them as they come: of the same rows, with the random numbers of the
// step that comes. No weight, moment or cursor changes.
#include <algorithm>

#include "proto/snug/status_macros.h"
#include "worker/train/drift.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

// Those from the first on that has a loss: without one there is no gradient.
MicroBatch FromTrained(const Dataset& dataset, const MicroBatch& rows, const Masking& masking) {
  const auto first = std::find_if(rows.begin(), rows.end(), [&](int64_t row) {
    return LossWeight(dataset, {row}, masking) > 0.0;
  });
  return first == rows.end() ? rows : MicroBatch(first, rows.end());
}

// The first of them that the key covers together; a row that it does not cover ends them.
MicroBatch RowsWithin(const program::TapeKey& key, const MicroBatch& rows, const Dataset& dataset) {
  MicroBatch within;
  program::TapeKey sum;
  for (const int64_t row : rows) {
    sum.tokens += dataset.tokens(row);
    sum.source_tokens += dataset.source_tokens(row);
    const bool fits = sum.tokens <= key.tokens && sum.source_tokens <= key.source_tokens &&
                      dataset.tokens(row) <= key.longest_document &&
                      dataset.source_tokens(row) <= key.longest_source &&
                      static_cast<int64_t>(within.size()) < key.documents;
    if (!fits) break;
    within.push_back(row);
  }
  return within;
}

}  // namespace

absl::StatusOr<Drift> Trainer::MeasureDrift() {
  if (!lowered_.exact.has_value())
    return Drift{.kinds = {},
                 .not_measured =
                     "memory.gradients: released; a gradient that goes as soon as its "
                     "weight has been updated cannot be compared"};
  const program::Tape& exact = lowered_.exact->tape;
  const BatchRange range = walk_->NextStep();
  const TrainingOptions& training = attempt_.training;
  const EpochImages images{*augmenter_, walk_->cursor().epoch};
  RowDraws draws = {.masking = {.probability = training.mlm_probability,
                                .seed = training.seed,
                                .epoch = walk_->plan().epoch()},
                    .images = augmenter_->augments() ? &images : nullptr};
  const MicroBatch trained =
      FromTrained(*dataset_, walk_->plan().Batch(range.begin), draws.masking);
  MicroBatch rows = RowsWithin(exact.key, trained, *dataset_);
  if (rows.empty()) {
    rows = {trained.front()};
    draws.most_tokens = exact.key.longest_document;
    draws.most_source_tokens = exact.key.longest_source;
  }
  ASSIGN_OR_RETURN(execute::Batch batch, buffers_->Fill(*dataset_, rows, draws));
  batch.row_logits = nullptr;
  const double weight = LossWeight(*dataset_, rows, draws.masking);
  const execute::StepScalars scalars{.loss_scale = weight > 0.0 ? 1.0 / weight : 0.0,
                                     .seed = training.seed,
                                     .step = global_step_,
                                     .neftune_alpha = training.neftune_alpha};
  DriftSums sums(lowered_.inexact_kinds);
  const auto compare = [&](int32_t parameter, const execute::View& gradient) {
    const execute::View& inexact = parameters_->views()[static_cast<size_t>(parameter)].gradient;
    return sums.Add(device_, parameter, inexact, gradient);
  };
  RETURN_IF_ERROR(executor_->Run(lowered_.step, *arena_, batch, scalars).status());
  RETURN_IF_ERROR(executor_->Run(exact, *arena_, batch, scalars, compare).status());
  Drift drift{.kinds = sums.Kinds(), .not_measured = {}};
  for (auto& [kind, found] : drift.kinds) {
    found.global_step = global_step_ + 1;
    found.tokens = batch.tokens + batch.source_tokens;
  }
  return drift;
}

}  // namespace snug::train

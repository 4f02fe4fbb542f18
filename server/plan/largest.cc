#include "server/plan/largest.h"

#include <algorithm>
#include <functional>

#include "proto/snug/status_macros.h"
#include "worker/program/rope_config.h"

namespace snug::server {
namespace {

using Fits = std::function<absl::StatusOr<bool>(int64_t)>;

// The largest of least..most for which `fits`, or 0. Doubles up to it first: what is far too large
// is never priced. Bytes rise with batch and length, but for an alignment here and there.
absl::StatusOr<int64_t> LargestOf(int64_t least, int64_t most, const Fits& fits) {
  int64_t good = 0, bad = most + 1;
  for (int64_t next = least; good < most; next = std::min(2 * next, most)) {
    ASSIGN_OR_RETURN(const bool fit, fits(next));
    if (!fit) {
      bad = next;
      break;
    }
    good = next;
  }
  while (good > 0 && good + 1 < bad) {
    const int64_t middle = good + (bad - good) / 2;
    ASSIGN_OR_RETURN(const bool fit, fits(middle));
    (fit ? good : bad) = middle;
  }
  return good;
}

}  // namespace

absl::StatusOr<int64_t> LargestBatch(const program::Program& program, const v1::JobSpec& spec,
                                     const RowLengths& lengths, const PlanMachine& machine,
                                     const LargestLimits& limits) {
  v1::JobSpec changed = spec;
  const int64_t rows = lengths.prepared() ? std::max<int64_t>(lengths.train.rows, 1) : INT64_MAX;
  return LargestOf(1, std::min(rows, limits.rows), [&](int64_t value) {
    changed.mutable_training()->set_per_device_train_batch_size(static_cast<int32_t>(value));
    return AnyPlanFits(program, changed, lengths, machine, limits.memory);
  });
}

int64_t ShortestSequence(const v1::JobSpec& spec) {
  const v1::TrainingSpec& training = spec.training();
  return training.sample_prompts().empty()
             ? 2
             : std::max<int64_t>(2, training.sample_max_new_tokens() + 1);
}

absl::StatusOr<int64_t> LargestLength(const program::Program& program, const v1::JobSpec& spec,
                                      const PlanMachine& machine, const LargestLimits& limits) {
  v1::JobSpec changed = spec;
  const int64_t most = std::min(program::LongestSequence(program.config), limits.tokens);
  return LargestOf(ShortestSequence(spec), most, [&](int64_t value) {
    changed.mutable_training()->set_max_seq_length(static_cast<int32_t>(value));
    return AnyPlanFits(program, changed, RowLengths(), machine, limits.memory);
  });
}

absl::StatusOr<v1::LargestSettings> LargestThatFit(const program::Program& program,
                                                   const v1::JobSpec& spec,
                                                   const RowLengths& lengths,
                                                   const PlanMachine& machine,
                                                   const LargestLimits& limits) {
  v1::LargestSettings largest;
  ASSIGN_OR_RETURN(const int64_t batch, LargestBatch(program, spec, lengths, machine, limits));
  ASSIGN_OR_RETURN(const int64_t length, LargestLength(program, spec, machine, limits));
  largest.set_per_device_train_batch_size(batch);
  largest.set_max_seq_length(length);
  return largest;
}

}  // namespace snug::server

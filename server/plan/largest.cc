#include "server/plan/largest.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "proto/snug/status_macros.h"
#include "worker/program/batching.h"
#include "worker/program/rope_config.h"

namespace snug::server {
namespace {

constexpr v1::Fidelity kFidelities[] = {v1::FIDELITY_EXACT, v1::FIDELITY_UNBIASED,
                                        v1::FIDELITY_APPROXIMATE};

// That a setting may have, and which of them is tried first.
struct Values {
  int64_t least = 1;
  int64_t most = 1;
  int64_t start = 1;
};

// A value, and what the smallest plan takes of the device there.
struct Tried {
  int64_t value = 0;
  int64_t bytes = 0;
};

// SmallestPlans at a value.
using PlansAt = std::function<absl::StatusOr<std::vector<v1::Plan>>(int64_t)>;

int64_t SmallestPeak(const std::vector<v1::Plan>& plans) {
  return plans.empty() ? INT64_MAX : plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
}

// Where a line through both meets the limit.
int64_t Crossing(const Tried& good, const Tried& bad, int64_t limit_bytes) {
  const int64_t rise = bad.bytes - good.bytes;
  if (rise <= 0) return bad.value;  // The host's memory ends before the device's.
  const double share = static_cast<double>(limit_bytes - good.bytes) / static_cast<double>(rise);
  const auto width = static_cast<double>(bad.value - good.value);
  return good.value + static_cast<int64_t>(std::min(share, 1.0) * width);
}

// The largest value at which some plan fits, or 0. The search doubles up to it, so that what is far
// too large is never priced. Bytes rise with the value, but for an alignment here and there, and
// nearly in a line: between a value that fits and one that does not, the next is where the line
// meets the limit. The middle is next where that has left more than half.
absl::StatusOr<int64_t> LargestOf(const Values& values, const PlanLimits& limits,
                                  const PlansAt& plans_at) {
  Tried good{.value = values.least - 1}, bad{.value = values.most + 1};
  int64_t next = std::max(values.least, std::min(values.start, values.most));
  bool halve = false;
  while (good.value + 1 < bad.value) {
    const int64_t width = bad.value - good.value;
    ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans, plans_at(next));
    const bool fits = FirstThatFits(plans, limits.device_bytes, limits.host_bytes) >= 0;
    (fits ? good : bad) = Tried{.value = next, .bytes = SmallestPeak(plans)};
    if (bad.value > values.most) {
      next = std::min(2 * next, values.most);
    } else if (good.value < values.least) {
      next = values.least;
    } else {
      halve = !halve && 2 * (bad.value - good.value) > width;
      next = halve ? good.value + (bad.value - good.value) / 2
                   : Crossing(good, bad, limits.device_bytes);
      next = std::max(good.value + 1, std::min(next, bad.value - 1));
    }
  }
  return good.value < values.least ? 0 : good.value;
}

// Micro-batches of a step, which has no more of them than an epoch of a prepared dataset. They come
// one after another and take no memory, but where group_by_length sorts the rows of some steps
// together: the most is tried first.
absl::StatusOr<int64_t> LargestAccumulation(const program::Program& program,
                                            const v1::JobSpec& spec, const RowLengths& lengths,
                                            const PlanMachine& machine,
                                            const LargestLimits& limits) {
  int64_t most = limits.micro_batches;
  if (lengths.prepared())
    most = std::min(most, program::MicroBatches(lengths.train, BatchingOf(spec)));
  // An update in backward leaves nothing to add the next one's gradients to.
  if (spec.memory().gradients() == v1::MemorySpec::GRADIENTS_RELEASED) most = 1;
  v1::JobSpec changed = spec;
  return LargestOf({.least = 1, .most = most, .start = most}, limits.memory, [&](int64_t value) {
    changed.mutable_training()->set_gradient_accumulation_steps(static_cast<int32_t>(value));
    return SmallestPlans(program, changed, lengths, machine);
  });
}

}  // namespace

absl::StatusOr<int64_t> LargestBatch(const program::Program& program, const v1::JobSpec& spec,
                                     const RowLengths& lengths, const PlanMachine& machine,
                                     const LargestLimits& limits) {
  v1::JobSpec changed = spec;
  const int64_t rows = lengths.prepared() ? std::max<int64_t>(lengths.train.rows, 1) : INT64_MAX;
  const Values values = {.least = 1,
                         .most = std::min(rows, limits.rows),
                         .start = spec.training().per_device_train_batch_size()};
  return LargestOf(values, limits.memory, [&](int64_t value) {
    changed.mutable_training()->set_per_device_train_batch_size(static_cast<int32_t>(value));
    return SmallestPlans(program, changed, lengths, machine);
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
  const Values values = {.least = ShortestSequence(spec),
                         .most = std::min(program::LongestSequence(program.config), limits.tokens),
                         .start = spec.training().max_seq_length()};
  return LargestOf(values, limits.memory, [&](int64_t value) {
    changed.mutable_training()->set_max_seq_length(static_cast<int32_t>(value));
    return SmallestPlans(program, changed, RowLengths(), machine);
  });
}

absl::StatusOr<std::vector<v1::LargestSettings>> LargestThatFit(const program::Program& program,
                                                                const v1::JobSpec& spec,
                                                                const RowLengths& lengths,
                                                                const PlanMachine& machine,
                                                                const LargestLimits& limits) {
  const bool pinned = !PatternsOf(spec, program.config).empty();
  std::vector<v1::LargestSettings> largest;
  v1::JobSpec job = spec, more_rows = spec, longer = spec;
  for (const v1::Fidelity fidelity : kFidelities) {
    if (pinned && fidelity != spec.memory().fidelity()) continue;
    for (v1::JobSpec* each : {&job, &more_rows, &longer})
      each->mutable_memory()->set_fidelity(fidelity);
    ASSIGN_OR_RETURN(const int64_t rows,
                     LargestBatch(program, more_rows, lengths, machine, limits));
    ASSIGN_OR_RETURN(const int64_t tokens, LargestLength(program, longer, machine, limits));
    ASSIGN_OR_RETURN(const int64_t micro_batches,
                     LargestAccumulation(program, job, lengths, machine, limits));
    v1::LargestSettings& found = largest.emplace_back();
    found.set_fidelity(fidelity);
    found.set_per_device_train_batch_size(rows);
    found.set_max_seq_length(tokens);
    found.set_gradient_accumulation_steps(micro_batches);
    // The next fidelity's searches start there: mostly it fits as well, and not much more does.
    more_rows.mutable_training()->set_per_device_train_batch_size(static_cast<int32_t>(rows));
    longer.mutable_training()->set_max_seq_length(static_cast<int32_t>(tokens));
  }
  return largest;
}

}  // namespace snug::server

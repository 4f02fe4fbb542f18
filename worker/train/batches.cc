#include "worker/train/batches.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "kernels/philox.h"

namespace snug::train {
namespace {

// Draws of the shuffle; ops of a step count from 0, so that no mask shares them.
constexpr uint32_t kShuffleOp = kernels::kMaxRandomOps - 1;

// Sequences that are open at a time: more pack tighter (0.5 % at 32 against next-fit's several) and
// mix rows less evenly.
constexpr size_t kPackingWindow = 32;

// A uniform draw from [0, bound). 64 random bits against a bound below 2^40: the bias is under
// 2^-24.
uint64_t DrawBelow(uint64_t seed, int64_t epoch, uint64_t index, uint64_t bound) {
  const kernels::RandomSite site{
      .seed = seed, .step = static_cast<uint32_t>(epoch), .micro_batch = 0, .op = kShuffleOp};
  const kernels::Random4 random = kernels::RandomBlock(site, index);
  const uint64_t word = uint64_t{random.word[0]} << 32 | random.word[1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * bound >> 64);
}

// Fisher and Yates.
std::vector<int64_t> Permutation(int64_t rows, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[DrawBelow(seed, epoch, i, i)]);
  return order;
}

struct Sequence {
  std::vector<int64_t> rows;
  int64_t tokens = 0;
};

// Documents end to end, up to max_seq_length: each goes to the first open sequence that has room.
std::vector<MicroBatch> PackSequences(const std::vector<int64_t>& order,
                                      const std::vector<int64_t>& row_tokens, int64_t limit) {
  std::vector<Sequence> sequences;
  size_t oldest_open = 0;
  for (int64_t row : order) {
    const int64_t tokens = row_tokens[static_cast<size_t>(row)];
    size_t s = oldest_open;
    while (s < sequences.size() && sequences[s].tokens + tokens > limit) ++s;
    if (s == sequences.size()) sequences.emplace_back();
    sequences[s].rows.push_back(row);
    sequences[s].tokens += tokens;
    if (sequences.size() - oldest_open > kPackingWindow) ++oldest_open;
  }
  std::vector<MicroBatch> packed;
  for (Sequence& sequence : sequences) packed.push_back(std::move(sequence.rows));
  return packed;
}

// One row each, or documents laid end to end.
std::vector<MicroBatch> SequencesOf(const std::vector<int64_t>& order,
                                    const std::vector<int64_t>& row_tokens,
                                    const TrainingOptions& options) {
  if (options.packing) return PackSequences(order, row_tokens, options.max_seq_length);
  std::vector<MicroBatch> single;
  for (int64_t row : order) single.push_back({row});
  return single;
}

std::vector<MicroBatch> Group(const std::vector<MicroBatch>& sequences, int64_t per_batch) {
  std::vector<MicroBatch> batches;
  for (size_t s = 0; s < sequences.size(); ++s) {
    if (s % static_cast<size_t>(per_batch) == 0) batches.emplace_back();
    batches.back().insert(batches.back().end(), sequences[s].begin(), sequences[s].end());
  }
  return batches;
}

}  // namespace

EpochPlan PlanEpoch(const std::vector<int64_t>& row_tokens, const TrainingOptions& options,
                    int64_t epoch) {
  const auto rows = static_cast<int64_t>(row_tokens.size());
  const std::vector<int64_t> order = Permutation(rows, options.seed, epoch);
  EpochPlan plan;
  plan.micro_batches = Group(SequencesOf(order, row_tokens, options), options.batch_rows);
  const auto batches = static_cast<int64_t>(plan.micro_batches.size());
  plan.steps = (batches + options.accumulation - 1) / options.accumulation;
  return plan;
}

std::vector<MicroBatch> PlanEvaluation(const std::vector<int64_t>& row_tokens,
                                       const TrainingOptions& options) {
  std::vector<int64_t> order(row_tokens.size());
  std::iota(order.begin(), order.end(), 0);
  return Group(SequencesOf(order, row_tokens, options), options.batch_rows);
}

int64_t TotalSteps(const std::vector<int64_t>& row_tokens, const TrainingOptions& options) {
  if (options.max_steps > 0) return options.max_steps;
  int64_t steps = 0;
  double left = options.epochs;
  for (int64_t epoch = 0; left > 0.0; ++epoch, left -= 1.0) {
    const int64_t whole = PlanEpoch(row_tokens, options, epoch).steps;
    steps +=
        left >= 1.0 ? whole : static_cast<int64_t>(std::ceil(left * static_cast<double>(whole)));
  }
  return std::max<int64_t>(steps, 1);
}

BatchWalk::BatchWalk(std::vector<int64_t> row_tokens, const TrainingOptions& options,
                     DataCursor start)
    : row_tokens_(std::move(row_tokens)), options_(options) {
  EnterEpoch(start.epoch);
  cursor_.micro_batch = start.micro_batch;
}

void BatchWalk::EnterEpoch(int64_t epoch) {
  cursor_ = {.epoch = epoch, .micro_batch = 0};
  plan_ = PlanEpoch(row_tokens_, options_, epoch);
}

std::vector<MicroBatch> BatchWalk::NextStep() {
  const auto all = static_cast<int64_t>(plan_.micro_batches.size());
  const int64_t end = std::min(all, cursor_.micro_batch + options_.accumulation);
  const std::vector<MicroBatch> step(plan_.micro_batches.begin() + cursor_.micro_batch,
                                     plan_.micro_batches.begin() + end);
  cursor_.micro_batch = end;
  if (end == all) EnterEpoch(cursor_.epoch + 1);
  return step;
}

double BatchWalk::epochs_done() const {
  return static_cast<double>(cursor_.epoch) +
         static_cast<double>(cursor_.micro_batch) /
             static_cast<double>(std::max<size_t>(1, plan_.micro_batches.size()));
}

std::vector<MicroBatch> StepBefore(const std::vector<int64_t>& row_tokens,
                                   const TrainingOptions& options, DataCursor cursor) {
  const bool at_start = cursor.micro_batch == 0;
  if (at_start && cursor.epoch == 0) return {};
  const EpochPlan plan = PlanEpoch(row_tokens, options, cursor.epoch - (at_start ? 1 : 0));
  const auto all = static_cast<int64_t>(plan.micro_batches.size());
  const int64_t end = at_start ? all : std::min(all, cursor.micro_batch);
  // Only the last step of an epoch can be shorter than the others.
  const int64_t begin = (end - 1) / options.accumulation * options.accumulation;
  return {plan.micro_batches.begin() + begin, plan.micro_batches.begin() + end};
}

program::TapeKey KeyOf(const MicroBatch& batch, const std::vector<int64_t>& row_tokens) {
  program::TapeKey key;
  key.documents = static_cast<int64_t>(batch.size());
  for (int64_t row : batch) {
    const int64_t tokens = row_tokens[static_cast<size_t>(row)];
    key.tokens += tokens;
    key.longest_document = std::max(key.longest_document, tokens);
  }
  return key;
}

}  // namespace snug::train

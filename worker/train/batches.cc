#include "worker/train/batches.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "kernels/philox.h"
#include "worker/weights/random_ops.h"

namespace snug::train {
namespace {

struct Draws {
  uint64_t seed = 0;
  int64_t epoch = 0;
  uint32_t shuffle = kRowShuffleOp;

  // A uniform draw from [0, bound). 64 random bits against a bound below 2^40: the bias is under
  // 2^-24.
  uint64_t Below(uint64_t index, uint64_t bound) const {
    const kernels::RandomSite site{
        .seed = seed, .step = static_cast<uint32_t>(epoch), .micro_batch = 0, .op = shuffle};
    const kernels::Random4 random = kernels::RandomBlock(site, index);
    const uint64_t word = uint64_t{random.word[0]} << 32 | random.word[1];
    return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * bound >> 64);
  }
};

// Fisher and Yates.
template <typename T>
void Shuffle(std::vector<T>& order, const Draws& draws) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.Below(i, i)]);
}

std::vector<int64_t> InOrder(size_t rows) {
  std::vector<int64_t> order(rows);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Longest first; rows of one length stay in the order they came in.
template <typename Iterator>
void SortByLength(Iterator begin, Iterator end, const std::vector<int64_t>& row_tokens) {
  std::stable_sort(begin, end, [&](int64_t a, int64_t b) {
    return row_tokens[static_cast<size_t>(a)] > row_tokens[static_cast<size_t>(b)];
  });
}

// Best-fit decreasing: longest first, each document goes to the fullest sequence that has room for
// it. At most 11/9 of the fewest sequences possible; in practice within a percent of none wasted.
std::vector<MicroBatch> PackSequences(std::vector<int64_t> order,
                                      const std::vector<int64_t>& row_tokens, int64_t limit) {
  SortByLength(order.begin(), order.end(), row_tokens);
  std::vector<MicroBatch> sequences;
  std::multimap<int64_t, size_t> room;  // What is left of a sequence -> its number.
  for (int64_t row : order) {
    const int64_t tokens = row_tokens[static_cast<size_t>(row)];
    const auto fullest = room.lower_bound(tokens);
    size_t sequence = sequences.size();
    int64_t left = limit - tokens;
    if (fullest == room.end()) {
      sequences.emplace_back();
    } else {
      sequence = fullest->second;
      left = fullest->first - tokens;
      room.erase(fullest);
    }
    sequences[sequence].push_back(row);
    if (left > 0) room.emplace(left, sequence);
  }
  return sequences;
}

// As transformers' LengthGroupedSampler: the shuffled rows in pieces of up to 50 optimizer steps,
// sorted by length within each; the longest row of all comes first.
void GroupByLength(std::vector<int64_t>& order, const std::vector<int64_t>& row_tokens,
                   const TrainingOptions& options) {
  constexpr size_t kMostSteps = 50, kFewestPieces = 4;
  const auto step_rows = static_cast<size_t>(options.batch_rows * options.accumulation);
  const size_t steps = std::min(order.size() / (step_rows * kFewestPieces), kMostSteps);
  const size_t piece = std::max<size_t>(steps, 1) * step_rows;
  size_t longest = 0;
  const auto tokens = [&](size_t at) { return row_tokens[static_cast<size_t>(order[at])]; };
  for (size_t begin = 0; begin < order.size(); begin += piece) {
    const size_t end = std::min(order.size(), begin + piece);
    SortByLength(order.begin() + static_cast<int64_t>(begin),
                 order.begin() + static_cast<int64_t>(end), row_tokens);
    if (tokens(begin) > tokens(longest)) longest = begin;
  }
  if (!order.empty()) std::swap(order[0], order[longest]);
}

// `per_batch` rows each, the last perhaps fewer.
std::vector<MicroBatch> GroupRows(const std::vector<int64_t>& order, int64_t per_batch) {
  std::vector<MicroBatch> batches;
  const auto rows = static_cast<int64_t>(order.size());
  batches.reserve(static_cast<size_t>((rows + per_batch - 1) / per_batch));
  for (int64_t begin = 0; begin < rows; begin += per_batch)
    batches.emplace_back(order.begin() + begin, order.begin() + std::min(rows, begin + per_batch));
  return batches;
}

// The same of sequences.
std::vector<MicroBatch> GroupSequences(std::vector<MicroBatch> sequences, int64_t per_batch) {
  if (per_batch == 1) return sequences;
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
  std::vector<int64_t> order = InOrder(row_tokens.size());
  Shuffle(order, {.seed = options.seed, .epoch = epoch});
  if (options.group_by_length && !options.packing) GroupByLength(order, row_tokens, options);
  EpochPlan plan;
  if (options.packing) {
    std::vector<MicroBatch> sequences =
        PackSequences(std::move(order), row_tokens, options.max_seq_length);
    Shuffle(sequences, {.seed = options.seed, .epoch = epoch, .shuffle = kSequenceShuffleOp});
    plan.micro_batches = GroupSequences(std::move(sequences), options.batch_rows);
  } else {
    plan.micro_batches = GroupRows(order, options.batch_rows);
  }
  const auto batches = static_cast<int64_t>(plan.micro_batches.size());
  plan.steps = (batches + options.accumulation - 1) / options.accumulation;
  return plan;
}

std::vector<MicroBatch> PlanEvaluation(const std::vector<int64_t>& row_tokens,
                                       const TrainingOptions& options) {
  std::vector<int64_t> order = InOrder(row_tokens.size());
  if (!options.packing) return GroupRows(order, options.batch_rows);
  return GroupSequences(PackSequences(std::move(order), row_tokens, options.max_seq_length),
                        options.batch_rows);
}

int64_t TotalSteps(const std::vector<int64_t>& row_tokens, const TrainingOptions& options) {
  if (options.max_steps > 0) return options.max_steps;
  // Of every epoch: the rows' order changes which of them are packed together, not how full the
  // sequences are. Rounded once, as transformers does.
  const auto whole = static_cast<double>(PlanEpoch(row_tokens, options, 0).steps);
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(options.epochs * whole)), 1);
}

BatchWalk::BatchWalk(std::vector<int64_t> row_tokens, const TrainingOptions& options,
                     DataCursor start)
    : row_tokens_(std::move(row_tokens)), options_(options) {
  EnterEpoch(start.epoch);
  cursor_.micro_batch = start.micro_batch;
}

void BatchWalk::EnterEpoch(int64_t epoch) {
  cursor_ = {.epoch = epoch, .micro_batch = 0};
  plan_ = {};  // Of the epoch before: not beside the new one.
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

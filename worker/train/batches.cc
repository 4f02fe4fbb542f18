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

constexpr uint32_t kNone = UINT32_MAX;  // Above program::kMaxRows.

struct Draws {
  uint64_t seed = 0;
  int64_t epoch = 0;
  uint32_t shuffle = kRowShuffleOp;

  // A uniform draw from [0, bound). 64 random bits against a bound below 2^32: the bias is under
  // 2^-32.
  uint64_t Below(uint64_t index, uint64_t bound) const {
    const kernels::RandomSite site{
        .seed = seed, .step = static_cast<uint32_t>(epoch), .micro_batch = 0, .op = shuffle};
    const kernels::Random4 random = kernels::RandomBlock(site, index);
    const uint64_t word = uint64_t{random.word[0]} << 32 | random.word[1];
    return static_cast<uint64_t>(static_cast<unsigned __int128>(word) * bound >> 64);
  }
};

// Fisher and Yates.
void Shuffle(std::vector<uint32_t>& order, const Draws& draws) {
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.Below(i, i)]);
}

std::vector<uint32_t> InOrder(int64_t rows) {
  std::vector<uint32_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// Longest first; rows of one length stay in the order they came in.
template <typename Iterator>
void SortByLength(Iterator begin, Iterator end, const Rows& rows) {
  std::stable_sort(begin, end,
                   [&](uint32_t a, uint32_t b) { return rows.tokens(a) > rows.tokens(b); });
}

// As transformers' LengthGroupedSampler: the shuffled rows in pieces, sorted by length within each;
// the longest row of all comes first.
void GroupByLength(std::vector<uint32_t>& order, const Rows& rows, const TrainingOptions& options) {
  const auto all = static_cast<int64_t>(order.size());
  const int64_t piece = program::GroupPieceRows(all, BatchingOf(options));
  auto longest = order.begin();
  for (int64_t begin = 0; begin < all; begin += piece) {
    const auto first = order.begin() + begin;
    SortByLength(first, order.begin() + std::min(all, begin + piece), rows);
    if (rows.tokens(*first) > rows.tokens(*longest)) longest = first;
  }
  if (all > 0) std::swap(order.front(), *longest);
}

// The sequences of an epoch that are not full, by the room that they have left.
class OpenSequences {
 public:
  // `most`: of all sequences, open or not.
  explicit OpenSequences(int64_t most) : behind_(static_cast<size_t>(most), kNone) {}

  // The fullest with enough room, of those as full the one longest here; it is here no more. kNone:
  // there is none.
  uint32_t Take(int64_t tokens, int64_t& room) {
    const auto fullest = by_room_.lower_bound(tokens);
    if (fullest == by_room_.end()) return kNone;
    Queue& queue = fullest->second;
    const uint32_t sequence = queue.first;
    room = fullest->first;
    if (sequence == queue.last) {
      by_room_.erase(fullest);
    } else {
      queue.first = behind_[sequence];
    }
    return sequence;
  }

  void Put(uint32_t sequence, int64_t room) {
    const auto [there, added] = by_room_.try_emplace(room, Queue{sequence, sequence});
    if (added) return;
    behind_[there->second.last] = sequence;
    there->second.last = sequence;
  }

 private:
  struct Queue {
    uint32_t first, last;
  };
  std::vector<uint32_t> behind_;  // In its queue.
  std::map<int64_t, Queue> by_room_;
};

int64_t Quotient(int64_t rows, int64_t per) { return (rows + per - 1) / per; }

}  // namespace

program::Batching BatchingOf(const TrainingOptions& options) {
  return {.rows = options.batch_rows,
          .accumulation = options.accumulation,
          .packing = options.packing,
          .max_seq_length = options.max_seq_length,
          .group_by_length = options.group_by_length};
}

EpochPlan EpochPlan::OfTraining(const Rows& rows, const TrainingOptions& options, int64_t epoch) {
  EpochPlan plan;
  plan.epoch_ = epoch;
  plan.rows_ = rows.size();
  plan.per_batch_ = options.batch_rows;
  plan.order_ = InOrder(rows.size());
  Shuffle(plan.order_, {.seed = options.seed, .epoch = epoch});
  if (options.packing) {
    plan.Pack(rows, options);
    Shuffle(plan.last_, {.seed = options.seed, .epoch = epoch, .shuffle = kSequenceShuffleOp});
  } else if (options.group_by_length) {
    GroupByLength(plan.order_, rows, options);
  }
  return plan;
}

EpochPlan EpochPlan::OfEvaluation(const Rows& rows, const TrainingOptions& options) {
  EpochPlan plan;
  plan.rows_ = rows.size();
  plan.per_batch_ = options.batch_rows;
  if (!options.packing) return plan;
  plan.order_ = InOrder(rows.size());
  plan.Pack(rows, options);
  return plan;
}

void EpochPlan::Pack(const Rows& rows, const TrainingOptions& options) {
  packed_ = true;
  SortByLength(order_.begin(), order_.end(), rows);
  before_.resize(order_.size());
  const int64_t limit = options.max_seq_length;
  const int64_t sequences = program::PackByBestFit(rows.lengths(), limit).sequences;
  last_.reserve(static_cast<size_t>(sequences));
  OpenSequences open(sequences);
  for (uint32_t place = 0; place < order_.size(); ++place) {
    const int64_t tokens = rows.tokens(order_[place]);
    int64_t room = limit;
    uint32_t sequence = open.Take(tokens, room);
    if (sequence == kNone) {
      sequence = static_cast<uint32_t>(last_.size());
      last_.push_back(kNone);
    }
    before_[place] = last_[sequence];
    last_[sequence] = place;
    if (room > tokens) open.Put(sequence, room - tokens);
  }
}

int64_t EpochPlan::micro_batches() const {
  return Quotient(packed_ ? static_cast<int64_t>(last_.size()) : rows_, per_batch_);
}

MicroBatch EpochPlan::Batch(int64_t micro_batch) const {
  const int64_t begin = micro_batch * per_batch_;
  if (packed_)
    return Sequences(begin, std::min(static_cast<int64_t>(last_.size()), begin + per_batch_));
  MicroBatch batch(static_cast<size_t>(std::min(rows_ - begin, per_batch_)));
  for (size_t i = 0; i < batch.size(); ++i) {
    const int64_t place = begin + static_cast<int64_t>(i);
    batch[i] = order_.empty() ? place : order_[static_cast<size_t>(place)];
  }
  return batch;
}

// A sequence is known from its end: it is counted, then filled from there.
MicroBatch EpochPlan::Sequences(int64_t begin, int64_t end) const {
  size_t documents = 0;
  for (int64_t s = begin; s < end; ++s) {
    for (uint32_t at = last_[static_cast<size_t>(s)]; at != kNone; at = before_[at]) ++documents;
  }
  MicroBatch batch(documents);
  for (int64_t s = end; s > begin; --s) {
    for (uint32_t at = last_[static_cast<size_t>(s) - 1]; at != kNone; at = before_[at])
      batch[--documents] = order_[at];
  }
  return batch;
}

int64_t TotalSteps(const program::LengthCounts& lengths, const TrainingOptions& options) {
  if (options.max_steps > 0) return options.max_steps;
  // Of every epoch: the rows' order changes which of them are packed together, not how full the
  // sequences are. Rounded once, as transformers does.
  const int64_t micro_batches = program::MicroBatches(lengths, BatchingOf(options));
  const auto whole = static_cast<double>(Quotient(micro_batches, options.accumulation));
  return std::max<int64_t>(static_cast<int64_t>(std::ceil(options.epochs * whole)), 1);
}

BatchWalk::BatchWalk(const Rows& rows, const TrainingOptions& options, DataCursor start)
    : rows_(rows), options_(options), cursor_(start) {
  if (start.micro_batch > 0) Plan(start.epoch);
}

void BatchWalk::Plan(int64_t epoch) {
  if (planned_ == epoch) return;
  plan_ = {};  // Of another epoch: not beside the new one.
  plan_ = EpochPlan::OfTraining(rows_, options_, epoch);
  planned_ = epoch;
}

BatchRange BatchWalk::NextStep() {
  Plan(cursor_.epoch);
  const int64_t all = plan_.micro_batches();
  return {cursor_.micro_batch, std::min(all, cursor_.micro_batch + options_.accumulation)};
}

void BatchWalk::StepDone() {
  cursor_.micro_batch = NextStep().end;
  if (cursor_.micro_batch < plan_.micro_batches()) return;
  cursor_ = {.epoch = cursor_.epoch + 1, .micro_batch = 0};
}

BatchRange BatchWalk::StepBefore() {
  const bool at_start = cursor_.micro_batch == 0;
  if (at_start && cursor_.epoch == 0) return {};
  Plan(cursor_.epoch - (at_start ? 1 : 0));
  const int64_t all = plan_.micro_batches();
  const int64_t end = at_start ? all : std::min(all, cursor_.micro_batch);
  // Only the last step of an epoch can be shorter than the others.
  return {(end - 1) / options_.accumulation * options_.accumulation, end};
}

double BatchWalk::epochs_done() const {
  if (cursor_.micro_batch == 0) return static_cast<double>(cursor_.epoch);
  return static_cast<double>(cursor_.epoch) +
         static_cast<double>(cursor_.micro_batch) / static_cast<double>(plan_.micro_batches());
}

program::TapeKey KeyOf(const MicroBatch& batch, const Rows& rows) {
  program::TapeKey key;
  key.documents = static_cast<int64_t>(batch.size());
  for (int64_t row : batch) {
    const int64_t tokens = rows.tokens(row);
    key.tokens += tokens;
    key.longest_document = std::max(key.longest_document, tokens);
  }
  return key;
}

}  // namespace snug::train

#include "worker/program/batching.h"

#include <algorithm>
#include <utility>

namespace snug::program {
namespace {

constexpr int64_t kRowNumber = 4, kBatchRow = 8;  // Bytes; in an order, in a micro-batch.
constexpr int64_t kMapNode = 64;  // A std::map's of two words, with what malloc adds.

// The order of a dataset's rows: while it is made, and from then on.
struct OrderBytes {
  int64_t peak = 0;
  int64_t kept = 0;
};

// train::EpochPlan: the rows, longest first, and for each the one before it in its sequence; of a
// sequence its last row, and while it has room, the next sequence with as much room.
OrderBytes PackedOrder(const LengthCounts& lengths, int64_t max_seq_length) {
  const Packing packing = PackByBestFit(lengths, max_seq_length);
  const int64_t kept = (2 * lengths.rows + packing.sequences) * kRowNumber;
  return {.peak = kept + packing.sequences * kRowNumber + packing.rooms * kMapNode, .kept = kept};
}

OrderBytes TrainingOrder(const LengthCounts& lengths, const Batching& batching) {
  if (batching.packing) return PackedOrder(lengths, batching.max_seq_length);
  const int64_t kept = lengths.rows * kRowNumber;
  if (!batching.group_by_length) return {.peak = kept, .kept = kept};
  const int64_t piece = std::min(lengths.rows, GroupPieceRows(lengths.rows, batching));
  return {.peak = kept + (piece + 1) / 2 * kRowNumber, .kept = kept};  // std::stable_sort's buffer.
}

// Sequences that are not full, by the room that they have left.
class OpenSequences {
 public:
  // Those with the least room that is enough, which are then no longer here; where there are none,
  // none of a new sequence's room.
  std::pair<int64_t, int64_t> TakeFullest(int64_t tokens, int64_t new_room) {
    const auto found = with_room_.lower_bound(tokens);
    if (found == with_room_.end()) return {new_room, 0};
    const std::pair<int64_t, int64_t> taken = *found;
    with_room_.erase(found);
    return taken;
  }
  void Put(int64_t room, int64_t sequences) {
    if (room > 0 && sequences > 0) with_room_[room] += sequences;
  }
  int64_t rooms() const { return static_cast<int64_t>(with_room_.size()); }

 private:
  std::map<int64_t, int64_t> with_room_;
};

// Rows of one length are placed at once here, one by one in a run: meanwhile there are the room
// that sequences had, and that of the one being filled.
constexpr int64_t kPassingRooms = 2;

// Rows that are evaluated in the order in which they lie need none.
OrderBytes EvaluationOrder(const LengthCounts& lengths, const Batching& batching) {
  return batching.packing ? PackedOrder(lengths, batching.max_seq_length) : OrderBytes{};
}

}  // namespace

LengthCounts::LengthCounts(std::initializer_list<int64_t> row_tokens) {
  for (int64_t length : row_tokens) Add(length);
}

void LengthCounts::Add(int64_t row_tokens, int64_t count) {
  rows_of[row_tokens] += count;
  rows += count;
  tokens += row_tokens * count;
}

TapeKey WorstBatch(const LengthCounts& lengths, const Batching& batching) {
  TapeKey key{.tokens = 0, .documents = 0, .longest_document = lengths.longest()};
  const auto& all = lengths.rows_of;
  if (!batching.packing) {
    for (auto longest = all.rbegin(); longest != all.rend(); ++longest) {
      const int64_t taken = std::min(longest->second, batching.rows - key.documents);
      key.documents += taken;
      key.tokens += taken * longest->first;
    }
    return key;
  }
  key.tokens = std::min(lengths.tokens,
                        batching.rows * std::max(batching.max_seq_length, key.longest_document));
  int64_t left = key.tokens;
  for (const auto& [tokens, rows] : all) {
    const int64_t taken = std::min(rows, left / tokens);
    key.documents += taken;
    left -= taken * tokens;
    if (taken < rows) break;
  }
  return key;
}

TapeKey WithSources(TapeKey worst, const LengthCounts& sources, const Batching& batching) {
  const TapeKey rows = WorstBatch(sources, {.rows = batching.rows});
  worst.source_tokens = rows.tokens;
  worst.longest_source = rows.longest_document;
  return worst;
}

Packing PackByBestFit(const LengthCounts& lengths, int64_t max_seq_length) {
  OpenSequences open;
  Packing packing;
  for (auto longest = lengths.rows_of.rbegin(); longest != lengths.rows_of.rend(); ++longest) {
    const int64_t tokens = longest->first;
    for (int64_t rows = longest->second; rows > 0;) {
      const auto [room, there] = open.TakeFullest(tokens, max_seq_length);
      const int64_t each = std::max<int64_t>(1, room / tokens);
      const int64_t needed = (rows + each - 1) / each;
      const int64_t taken = there > 0 ? std::min(there, needed) : needed;
      if (there == 0) packing.sequences += taken;
      const int64_t last = std::min(rows - (taken - 1) * each, each);
      open.Put(room, there - taken);
      open.Put(room - each * tokens, taken - 1);
      open.Put(room - last * tokens, 1);
      rows -= (taken - 1) * each + last;
      packing.rooms = std::max(packing.rooms, open.rooms() + kPassingRooms);
    }
  }
  return packing;
}

int64_t MicroBatches(const LengthCounts& lengths, const Batching& batching) {
  const int64_t rows =
      batching.packing ? PackByBestFit(lengths, batching.max_seq_length).sequences : lengths.rows;
  return (rows + batching.rows - 1) / batching.rows;
}

int64_t GroupPieceRows(int64_t rows, const Batching& batching) {
  constexpr int64_t kMostSteps = 50, kFewestPieces = 4;
  const int64_t step_rows = batching.rows * batching.accumulation;
  return std::clamp<int64_t>(rows / step_rows / kFewestPieces, 1, kMostSteps) * step_rows;
}

int64_t SourceBytes(const LengthCounts& training, const LengthCounts& evaluation) {
  return static_cast<int64_t>(training.rows_of.size() + evaluation.rows_of.size()) * kMapNode;
}

int64_t DataBytes(const LengthCounts& training, const LengthCounts& evaluation,
                  const Batching& batching) {
  const OrderBytes order = TrainingOrder(training, batching);
  const OrderBytes other = EvaluationOrder(evaluation, batching);
  const int64_t documents = std::max(WorstBatch(training, batching).documents,
                                     WorstBatch(evaluation, batching).documents);
  const auto lengths = static_cast<int64_t>(training.rows_of.size() + evaluation.rows_of.size());
  const int64_t batch = documents * kBatchRow;
  const int64_t beside = std::max(other.peak, other.kept + batch);  // The order of training.
  return std::max(order.peak, order.kept + beside) + lengths * kMapNode;
}

}  // namespace snug::program

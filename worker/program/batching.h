// How the rows of a dataset become micro-batches, as far as memory depends on it: the worst of
// these, and the bytes that it takes to know their order. Knows how many rows have which length,
// never the rows; so both come out for any dataset at once.
#ifndef WORKER_PROGRAM_BATCHING_H_
#define WORKER_PROGRAM_BATCHING_H_

#include <cstdint>
#include <initializer_list>
#include <map>

#include "worker/program/tape.h"

namespace snug::program {

// Of a dataset: rows are numbered in 32 bits, and one number more means none.
inline constexpr int64_t kMaxRows = (int64_t{1} << 32) - 2;

// How many rows of a dataset have which length.
struct LengthCounts {
  LengthCounts() = default;
  LengthCounts(std::initializer_list<int64_t> row_tokens);
  void Add(int64_t row_tokens, int64_t count = 1);
  bool empty() const { return rows == 0; }
  int64_t longest() const { return empty() ? 0 : rows_of.rbegin()->first; }

  std::map<int64_t, int64_t> rows_of;  // Tokens -> rows, more than none.
  int64_t rows = 0;
  int64_t tokens = 0;
};

struct Batching {
  int64_t rows = 1;          // Rows (packed: sequences) per micro-batch.
  int64_t accumulation = 1;  // Micro-batches per optimizer step.
  bool packing = false;
  int64_t max_seq_length = 0;    // Tokens.
  bool group_by_length = false;  // Not beside packing.
};

// The worst micro-batch that any order of the rows can give: the longest rows; packed: sequences of
// at most max_seq_length, as full as they can be, of the shortest rows.
TapeKey WorstBatch(const LengthCounts& lengths, const Batching& batching);

// The same of rows with a source each, which are not packed: any rows may come together.
TapeKey WithSources(TapeKey worst, const LengthCounts& sources, const Batching& batching);

// What best-fit decreasing makes of the rows, whatever order rows of one length come in: each row,
// longest first, goes to the fullest sequence that has room for it. At most 11/9 of the fewest
// sequences possible; in practice within a percent of none wasted.
struct Packing {
  int64_t sequences = 0;
  int64_t rooms = 0;  // At any time at most so many different rooms are left in sequences.
};
Packing PackByBestFit(const LengthCounts& lengths, int64_t max_seq_length);

// Of an epoch; the last may be smaller than the others.
int64_t MicroBatches(const LengthCounts& lengths, const Batching& batching);

// Rows that group_by_length sorts at a time: up to 50 optimizer steps, at most a quarter of all, as
// transformers' LengthGroupedSampler.
int64_t GroupPieceRows(int64_t rows, const Batching& batching);

// What a worker holds of its datasets beside the mapped files, at the most: the order of an epoch's
// rows while the evaluation's is made, their lengths' counts, and the rows of a micro-batch.
// `evaluation`: empty where there is none.
int64_t DataBytes(const LengthCounts& training, const LengthCounts& evaluation,
                  const Batching& batching);
// ... and of their sources, where they have such.
int64_t SourceBytes(const LengthCounts& training, const LengthCounts& evaluation);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_BATCHING_H_

#include "worker/program/batching.h"

#include "gtest/gtest.h"

namespace snug::program {
namespace {

Batching Packed(int64_t rows, int64_t max_seq_length) {
  return {.rows = rows, .packing = true, .max_seq_length = max_seq_length};
}

TEST(BatchingTest, WorstBatchIsTheLongestRows) {
  const TapeKey key = WorstBatch({5, 9, 2, 7}, {.rows = 2, .max_seq_length = 100});
  EXPECT_EQ(key.tokens, 16);
  EXPECT_EQ(key.documents, 2);
  EXPECT_EQ(key.longest_document, 9);
}

// Fewer rows than a batch has room for, and two of one length.
TEST(BatchingTest, WorstBatchHasEachRowOnce) {
  const TapeKey key = WorstBatch({5, 5, 2}, {.rows = 8, .max_seq_length = 100});
  EXPECT_EQ(key.tokens, 12);
  EXPECT_EQ(key.documents, 3);
  EXPECT_EQ(WorstBatch({}, {.rows = 8}).tokens, 0);
}

// Two sequences of at most 10 tokens: at most 20 tokens, and as many documents as the shortest rows
// can make of that.
TEST(BatchingTest, WorstPackedBatchIsFullSequencesOfTheShortestRows) {
  const TapeKey key = WorstBatch({5, 9, 2, 7, 3}, Packed(2, 10));
  EXPECT_EQ(key.tokens, 20);
  EXPECT_EQ(key.documents, 4);
  EXPECT_EQ(key.longest_document, 9);
}

// 6 + 4, 5 + 5 and 3 + 3 + 3.
TEST(BatchingTest, BestFitOfLengthsAlone) {
  EXPECT_EQ(PackByBestFit({3, 3, 5, 3, 4, 5, 6}, 10).sequences, 3);
  EXPECT_EQ(PackByBestFit({11, 12, 1}, 10).sequences, 3);  // Too long for any: alone.
  EXPECT_EQ(PackByBestFit({}, 10).sequences, 0);
}

// Seven rows by twos; and their three sequences.
TEST(BatchingTest, MicroBatchesOfAnEpoch) {
  const LengthCounts rows = {3, 3, 5, 3, 4, 5, 6};
  EXPECT_EQ(MicroBatches(rows, {.rows = 2}), 4);
  EXPECT_EQ(MicroBatches(rows, {.rows = 7}), 1);
  EXPECT_EQ(MicroBatches(rows, Packed(2, 10)), 2);
  EXPECT_EQ(MicroBatches(rows, Packed(1, 10)), 3);
}

// 4 bytes a row and 8 a row of a micro-batch; sorted in pieces of 50 steps of 4 rows, of which half
// are aside meanwhile. 64 a length.
TEST(BatchingTest, RowsAreNumbersOfFourBytes) {
  LengthCounts rows;
  rows.Add(1, 1'000'000);
  Batching batching = {.rows = 2, .accumulation = 2, .max_seq_length = 8};
  EXPECT_EQ(DataBytes(rows, {}, batching), 4'000'000 + 2 * 8 + 64);
  EXPECT_EQ(DataBytes(rows, rows, batching), 4'000'000 + 2 * 8 + 2 * 64);  // Evaluated as they lie.
  batching.group_by_length = true;
  EXPECT_EQ(DataBytes(rows, {}, batching), 4'000'000 + 100 * 4 + 64);
}

// 8 bytes a row and 4 a sequence, and 4 more while it is packed.
TEST(BatchingTest, PackedRowsKnowTheOneBefore) {
  LengthCounts rows;
  rows.Add(1, 1'000'000);
  const int64_t sequences = 125'000, rooms = 2 * 64;
  EXPECT_EQ(DataBytes(rows, {}, Packed(1, 8)), 8'000'000 + 8 * sequences + rooms + 64);
  EXPECT_EQ(DataBytes(rows, rows, Packed(1, 8)), 2 * 8'000'000 + 12 * sequences + rooms + 2 * 64);
}

}  // namespace
}  // namespace snug::program

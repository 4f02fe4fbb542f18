#include "worker/train/batches.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/train/test_rows.h"

namespace snug::train {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

TrainingOptions Options(int64_t rows, int64_t accumulation, bool packing = false) {
  TrainingOptions options;
  options.batch_rows = rows;
  options.accumulation = accumulation;
  options.packing = packing;
  options.max_seq_length = 32;
  options.seed = 7;
  return options;
}

std::vector<int64_t> Lengths(int64_t rows) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < rows; ++i) lengths.push_back(1 + i * 7 % 20);
  return lengths;
}

std::vector<int64_t> AllRows(const EpochPlan& plan) {
  return RowsOf(plan, {0, plan.micro_batches()});
}

EpochPlan PlanEpoch(const std::vector<int64_t>& lengths, const TrainingOptions& options,
                    int64_t epoch) {
  return EpochPlan::OfTraining(TestRows(lengths).rows(), options, epoch);
}

// Each row once, in another order each epoch and for each seed, and the same when asked again.
TEST(BatchesTest, AnEpochIsAPermutationOfTheRows) {
  for (bool packing : {false, true}) {
    const TrainingOptions options = Options(4, 1, packing);
    std::vector<int64_t> first = AllRows(PlanEpoch(Lengths(101), options, 0));
    EXPECT_EQ(first, AllRows(PlanEpoch(Lengths(101), options, 0)));
    EXPECT_NE(first, AllRows(PlanEpoch(Lengths(101), options, 1)));
    TrainingOptions other = options;
    other.seed = 8;
    EXPECT_NE(first, AllRows(PlanEpoch(Lengths(101), other, 0)));
    std::sort(first.begin(), first.end());
    std::vector<int64_t> all(101);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(first, all);
  }
}

// The step that ended where a walk stands, found without walking: epochs whose last step and last
// micro-batch are short among them.
TEST(BatchesTest, TheStepBeforeACursorIsTheOneThatTheWalkGave) {
  for (int64_t accumulation : {1, 3, 4, 100}) {
    const TrainingOptions options = Options(2, accumulation, /*packing=*/true);
    const TestRows rows(Lengths(37));
    BatchWalk walk(rows.rows(), options);
    EXPECT_EQ(walk.StepBefore().end, 0);
    for (int step = 0; step < 30; ++step) {
      const BatchRange range = walk.NextStep();
      const std::vector<MicroBatch> given = BatchesOf(walk.plan(), range);
      const int64_t epoch = walk.cursor().epoch;
      ASSERT_EQ(walk.plan().epoch(), epoch);
      ASSERT_FALSE(given.empty());
      walk.StepDone();
      BatchWalk there(rows.rows(), options, walk.cursor());
      for (BatchWalk* asked : {&there, &walk}) {
        const BatchRange before = asked->StepBefore();
        ASSERT_EQ(BatchesOf(asked->plan(), before), given) << "step " << step;
        ASSERT_EQ(asked->plan().epoch(), epoch);
      }
    }
  }
}

// Any row is about as likely at any place: with 4 rows and 24,000 epochs each of the 24 orders is
// drawn 1,000 times, give or take 5 sigma.
TEST(BatchesTest, PermutationsAreUniform) {
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 24000; ++epoch)
    ++counts[AllRows(PlanEpoch({1, 1, 1, 1}, Options(4, 1), epoch))];
  EXPECT_EQ(counts.size(), 24u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 160);
}

// 10 rows in batches of 4 make 3 micro-batches, the last of 2; accumulating 2 makes 2 steps.
TEST(BatchesTest, LastBatchAndLastStepMayBeSmaller) {
  const EpochPlan plan = PlanEpoch(Lengths(10), Options(4, 2), 0);
  ASSERT_EQ(plan.micro_batches(), 3);
  EXPECT_EQ(plan.Batch(2).size(), 2u);
  const TestRows rows(Lengths(10));
  BatchWalk walk(rows.rows(), Options(4, 2));
  walk.StepDone();
  const BatchRange last = walk.NextStep();
  EXPECT_EQ(last.begin, 2);
  EXPECT_EQ(last.end, 3);
  walk.StepDone();
  EXPECT_EQ(walk.cursor().epoch, 1);
}

// Asked twice, as after a step that failed, the walk gives the same rows and stays where it is.
TEST(BatchesTest, AStepIsTheSameUntilItIsDone) {
  const TestRows rows(Lengths(23));
  BatchWalk walk(rows.rows(), Options(2, 3));
  for (int step = 0; step < 12; ++step) {
    const DataCursor before = walk.cursor();
    const BatchRange asked = walk.NextStep();
    const std::vector<int64_t> first = RowsOf(walk.plan(), asked);
    const BatchRange again = walk.NextStep();
    EXPECT_EQ(RowsOf(walk.plan(), again), first);
    EXPECT_EQ(walk.cursor().epoch, before.epoch);
    EXPECT_EQ(walk.cursor().micro_batch, before.micro_batch);
    walk.StepDone();
    const BatchRange next = walk.NextStep();
    EXPECT_NE(RowsOf(walk.plan(), next), first) << step;
  }
}

TEST(BatchesTest, PackedSequencesStayWithinTheLimitAndWasteLittle) {
  const std::vector<int64_t> lengths = Lengths(500);
  const EpochPlan plan = PlanEpoch(lengths, Options(1, 1, /*packing=*/true), 0);
  const TestRows rows(lengths);
  for (const MicroBatch& sequence : BatchesOf(plan))
    EXPECT_LE(KeyOf(sequence, rows.rows()).tokens, 32);
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_LT(static_cast<double>(plan.micro_batches()) * 32, 1.01 * static_cast<double>(total));
}

// 6 + 4, 5 + 5 and 3 + 3 + 3: first-fit in the order of the rows would need four sequences of 10.
TEST(BatchesTest, PackingTakesTheFullestSequenceThatHasRoom) {
  TrainingOptions options = Options(1, 1, /*packing=*/true);
  options.max_seq_length = 10;
  const std::vector<int64_t> lengths = {3, 3, 5, 3, 4, 5, 6};
  std::vector<MicroBatch> sequences = BatchesOf(PlanEpoch(lengths, options, 0));
  for (MicroBatch& sequence : sequences) std::sort(sequence.begin(), sequence.end());
  EXPECT_THAT(sequences,
              UnorderedElementsAre(ElementsAre(4, 6), ElementsAre(2, 5), ElementsAre(0, 1, 3)));
}

// Rows of one length meet others each epoch, and sequences come in another order.
TEST(BatchesTest, PackedNeighboursChangeWithTheEpoch) {
  const TrainingOptions options = Options(1, 1, /*packing=*/true);
  const std::vector<int64_t> lengths = Lengths(200);
  const auto first = BatchesOf(PlanEpoch(lengths, options, 0));
  const auto second = BatchesOf(PlanEpoch(lengths, options, 1));
  const std::set<MicroBatch> before(first.begin(), first.end());
  const auto same = std::count_if(second.begin(), second.end(),
                                  [&](const MicroBatch& batch) { return before.contains(batch); });
  EXPECT_LT(same, static_cast<int64_t>(second.size()) / 4);
}

// Transformers' sampler, by hand: with 16 rows and steps of 2 rows, pieces of 2 steps, each sorted;
// the longest row of all in front.
TEST(BatchesTest, GroupedRowsAreSortedWithinPieces) {
  TrainingOptions options = Options(2, 1);
  options.group_by_length = true;
  std::vector<int64_t> lengths(16);
  std::iota(lengths.begin(), lengths.end(), 1);
  const std::vector<int64_t> plain = AllRows(PlanEpoch(lengths, Options(2, 1), 3));
  std::vector<int64_t> expected = plain;
  for (size_t begin = 0; begin < 16; begin += 4)
    std::sort(expected.begin() + static_cast<int64_t>(begin),
              expected.begin() + static_cast<int64_t>(begin + 4), std::greater<>());
  std::swap(*std::find(expected.begin(), expected.end(), 15), expected[0]);
  EXPECT_EQ(AllRows(PlanEpoch(lengths, options, 3)), expected);
  EXPECT_NE(AllRows(PlanEpoch(lengths, options, 4)), expected);
}

TEST(BatchesTest, GroupedBatchesHaveRowsOfLikeLength) {
  TrainingOptions options = Options(4, 1);
  const std::vector<int64_t> lengths = Lengths(400);
  const TestRows rows(lengths);
  const auto spread = [&](const EpochPlan& plan) {
    int64_t sum = 0;
    for (const MicroBatch& batch : BatchesOf(plan)) {
      const program::TapeKey key = KeyOf(batch, rows.rows());
      sum += key.longest_document * key.documents - key.tokens;  // What padding would add.
    }
    return sum;
  };
  const int64_t shuffled = spread(PlanEpoch(lengths, options, 0));
  options.group_by_length = true;
  EXPECT_LT(spread(PlanEpoch(lengths, options, 0)), shuffled / 20);
}

// What the daemon reserves for covers every batch of every epoch.
TEST(BatchesTest, WorstBatchCoversAll) {
  const std::vector<int64_t> lengths = Lengths(200);
  for (bool packing : {false, true}) {
    const TrainingOptions options = Options(3, 1, packing);
    const TestRows rows(lengths);
    const program::TapeKey worst = program::WorstBatch(rows.lengths(), BatchingOf(options));
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      for (const MicroBatch& batch : BatchesOf(PlanEpoch(lengths, options, epoch)))
        ASSERT_TRUE(worst.Covers(KeyOf(batch, rows.rows())));
    }
  }
}

TEST(BatchesTest, TotalStepsCountsPartsOfAnEpoch) {
  TrainingOptions options = Options(4, 2);
  options.epochs = 1.0;
  EXPECT_EQ(TotalSteps(TestRows(Lengths(10)).lengths(), options), 2);
  options.epochs = 2.5;
  EXPECT_EQ(TotalSteps(TestRows(Lengths(10)).lengths(), options), 5);
  options.max_steps = 77;
  EXPECT_EQ(TotalSteps(TestRows(Lengths(10)).lengths(), options), 77);
}

// As transformers: ceil(epochs * steps), although 1.1 - 1.0 is more than 0.1.
TEST(BatchesTest, TotalStepsAreRoundedOnce) {
  TrainingOptions options = Options(1, 1);
  options.epochs = 1.1;
  EXPECT_EQ(TotalSteps(TestRows(Lengths(10)).lengths(), options), 11);
  options.epochs = 2.3;
  EXPECT_EQ(TotalSteps(TestRows(Lengths(100)).lengths(), options), 230);
}

// What TotalSteps counts on: packed neighbours change, the number of sequences does not.
TEST(BatchesTest, EveryEpochHasAsManySteps) {
  for (bool packing : {false, true}) {
    const TrainingOptions options = Options(2, 3, packing);
    const int64_t steps = TotalSteps(TestRows(Lengths(213)).lengths(), options);
    for (int64_t epoch = 0; epoch < 20; ++epoch)
      ASSERT_EQ((PlanEpoch(Lengths(213), options, epoch).micro_batches() + 2) / 3, steps) << epoch;
  }
}

// Begun anywhere, the walk goes on as if it had never stopped.
TEST(BatchesTest, AWalkResumesAtItsCursor) {
  for (bool packing : {false, true}) {
    TrainingOptions options = Options(4, 2, packing);
    options.group_by_length = !packing;
    const TestRows rows(Lengths(50));
    BatchWalk walk(rows.rows(), options);
    for (int step = 0; step < 20; ++step) {
      BatchWalk resumed(rows.rows(), options, walk.cursor());
      EXPECT_EQ(resumed.epochs_done(), walk.epochs_done());
      const BatchRange range = walk.NextStep();
      EXPECT_EQ(RowsOf(resumed.plan(), resumed.NextStep()), RowsOf(walk.plan(), range)) << step;
      walk.StepDone();
    }
  }
}

TEST(BatchesTest, EvaluationIsInOrder) {
  const TestRows rows({5, 6, 7});
  EXPECT_THAT(BatchesOf(EpochPlan::OfEvaluation(rows.rows(), Options(2, 1))),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(BatchesOf(EpochPlan::OfEvaluation(rows.rows(), Options(2, 1, /*packing=*/true))),
              ElementsAre(ElementsAre(2, 1, 0)));
}

// Best fit as a book has it, sequence by sequence: what Pack must give without these lists.
std::vector<MicroBatch> BestFit(const std::vector<int64_t>& lengths, int64_t limit) {
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  const auto tokens = [&](int64_t row) { return lengths[static_cast<size_t>(row)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return tokens(a) > tokens(b); });
  std::vector<MicroBatch> sequences;
  std::multimap<int64_t, size_t> room;  // The first of those with equal room is the oldest there.
  for (int64_t row : order) {
    const auto fullest = room.lower_bound(tokens(row));
    size_t sequence = sequences.size();
    int64_t left = limit;
    if (fullest == room.end()) {
      sequences.emplace_back();
    } else {
      std::tie(left, sequence) = *fullest;
      room.erase(fullest);
    }
    sequences[sequence].push_back(row);
    if (left > tokens(row)) room.emplace(left - tokens(row), sequence);
  }
  return sequences;
}

// Lengths drawn from few and from many, short and longer than the limit.
TEST(BatchesTest, PackingIsBestFitDecreasing) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 300; ++trial) {
    const uint32_t longest = 1 + random() % 40;
    std::vector<int64_t> lengths(1 + random() % 300);
    for (int64_t& tokens : lengths) tokens = 1 + random() % longest;
    const TestRows rows(lengths);
    const std::vector<MicroBatch> expected = BestFit(lengths, 32);
    const auto plan = EpochPlan::OfEvaluation(rows.rows(), Options(1, 1, /*packing=*/true));
    ASSERT_EQ(BatchesOf(plan), expected);
    ASSERT_EQ(program::PackByBestFit(rows.lengths(), 32).sequences,
              static_cast<int64_t>(expected.size()));
  }
}

}  // namespace
}  // namespace snug::train

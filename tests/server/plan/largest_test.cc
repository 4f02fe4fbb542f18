#include "server/plan/largest.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "tests/server/plan/toy_config.h"

namespace snug::server {
namespace {

constexpr PlanMachine kMachine = {.threads = 2, .context_bytes = 1000};

class LargestTest : public testing::Test {
 protected:
  LargestTest() {
    spec_.set_method(v1::JobSpec::METHOD_LORA);
    spec_.mutable_training()->set_packing(false);
    spec_.mutable_training()->set_max_seq_length(64);
    FillDefaults(spec_, 128);
    program_ = program::BuildProgram(ToyConfig(), ModeOf(spec_)).value();
  }

  std::vector<v1::LargestSettings> LargestAtEach(const RowLengths& lengths, int64_t bytes) const {
    const LargestLimits limits = {.micro_batches = 1000, .memory = {.device_bytes = bytes}};
    return LargestThatFit(program_, spec_, lengths, kMachine, limits).value();
  }
  // At the job's own fidelity, exact.
  v1::LargestSettings Largest(const RowLengths& lengths, int64_t bytes) const {
    return LargestAtEach(lengths, bytes).front();
  }
  int64_t SmallestPeak(int rows, int length, const RowLengths& lengths) const {
    v1::JobSpec spec = spec_;
    spec.mutable_training()->set_per_device_train_batch_size(rows);
    spec.mutable_training()->set_max_seq_length(length);
    const std::vector<v1::Plan> plans = PlansFor(program_, spec, lengths, kMachine).value();
    return plans[static_cast<size_t>(SmallestOf(plans))].peak_bytes();
  }

  v1::JobSpec spec_;
  program::Program program_;
};

// To the byte: with a byte less than a batch's smallest plan it is one row less.
TEST_F(LargestTest, TheBatchIsTheLargestOfWhichAPlanFits) {
  for (int rows : {1, 2, 7, 24, 100}) {
    const int64_t bytes = SmallestPeak(rows, 64, {});
    EXPECT_EQ(Largest({}, bytes).per_device_train_batch_size(), rows);
    EXPECT_EQ(Largest({}, bytes - 1).per_device_train_batch_size(), rows - 1);
  }
}

TEST_F(LargestTest, TheLengthIsTheLargestUpToTheModels) {
  for (int length : {2, 40, 64, 100, 128}) {
    const int64_t bytes = SmallestPeak(8, length, {});
    EXPECT_EQ(Largest({}, bytes).max_seq_length(), length);
    EXPECT_LT(Largest({}, bytes - 1).max_seq_length(), length);
  }
  EXPECT_EQ(Largest({}, int64_t{1} << 40).max_seq_length(), 128);
}

// What does not fit at all is said as 0.
TEST_F(LargestTest, NothingFitsIntoNothing) {
  EXPECT_EQ(Largest({}, 1000).per_device_train_batch_size(), 0);
  EXPECT_EQ(Largest({}, 1000).max_seq_length(), 0);
  EXPECT_EQ(Largest({}, 1000).gradient_accumulation_steps(), 0);
}

// Codes take fewer bytes than what is kept, and than what is handed to a layer that is run again.
// To the byte, at each fidelity: it is what the job would find if it allowed as much.
TEST_F(LargestTest, AnotherFidelityHasItsOwnPlans) {
  program::ModelConfig config = ToyConfig();
  config.layers = 12;
  program_ = program::BuildProgram(config, ModeOf(spec_)).value();
  const int64_t bytes = SmallestPeak(16, 64, {});
  const std::vector<v1::LargestSettings> each = LargestAtEach({}, bytes);
  ASSERT_EQ(each.size(), 3u);
  EXPECT_EQ(each[0].per_device_train_batch_size(), 16);
  EXPECT_GT(each[2].per_device_train_batch_size(), 16);
  EXPECT_GE(each[2].max_seq_length(), each[0].max_seq_length());
  for (size_t i = 0; i < each.size(); ++i) {
    EXPECT_EQ(each[i].fidelity(), v1::FIDELITY_EXACT + static_cast<int>(i));
    spec_.mutable_memory()->set_fidelity(each[i].fidelity());
    const auto rows = static_cast<int>(each[i].per_device_train_batch_size());
    EXPECT_LE(SmallestPeak(rows, 64, {}), bytes);
    EXPECT_GT(SmallestPeak(rows + 1, 64, {}), bytes);
    const auto tokens = static_cast<int>(each[i].max_seq_length());
    EXPECT_LE(SmallestPeak(8, tokens, {}), bytes);
    if (tokens < 128) {
      EXPECT_GT(SmallestPeak(8, tokens + 1, {}), bytes);
    }
  }
}

// Where what is there has nothing to do with it, as many as may be given; a step ends with the
// epoch. Six rows of 10 tokens are packed into 64.
TEST_F(LargestTest, MicroBatchesAreAsManyAsAnEpochHas) {
  constexpr int64_t kPlenty = int64_t{1} << 40;
  EXPECT_EQ(Largest({}, kPlenty).gradient_accumulation_steps(), 1000);
  EXPECT_EQ(Largest({}, SmallestPeak(8, 64, {})).gradient_accumulation_steps(), 1000);
  RowLengths lengths;
  lengths.train.Add(10, 50);
  EXPECT_EQ(Largest(lengths, kPlenty).gradient_accumulation_steps(), 7);
  spec_.mutable_training()->set_packing(true);
  EXPECT_EQ(Largest(lengths, kPlenty).gradient_accumulation_steps(), 2);
}

// Rows that are sorted by length together, as many as those of a step, take 2 bytes each.
TEST_F(LargestTest, MicroBatchesThatAreSortedTogetherHaveToFit) {
  RowLengths lengths;
  lengths.train.Add(10, 1000);
  spec_.mutable_training()->set_group_by_length(true);
  spec_.mutable_training()->set_gradient_accumulation_steps(50);
  const int64_t bytes = SmallestPeak(8, 64, lengths);
  EXPECT_EQ(Largest(lengths, bytes).gradient_accumulation_steps(), 50);
  EXPECT_EQ(Largest(lengths, bytes - 1).gradient_accumulation_steps(), 49);
  EXPECT_EQ(Largest(lengths, int64_t{1} << 40).gradient_accumulation_steps(), 125);
}

// CheckSpec refuses a second micro-batch there.
TEST_F(LargestTest, GradientsThatAreReleasedAreNotAccumulated) {
  spec_.mutable_memory()->set_gradients(v1::MemorySpec::GRADIENTS_RELEASED);
  EXPECT_EQ(Largest({}, int64_t{1} << 40).gradient_accumulation_steps(), 1);
}

// Rows as short as they are make room for more of them, and there are no more than there are.
TEST_F(LargestTest, ThePreparedDatasetsRowsAreAllThatABatchCanHave) {
  RowLengths lengths;
  lengths.train.Add(10, 50);
  EXPECT_EQ(Largest(lengths, int64_t{1} << 40).per_device_train_batch_size(), 50);
  const int64_t bytes = SmallestPeak(20, 64, lengths);
  EXPECT_EQ(Largest(lengths, bytes).per_device_train_batch_size(), 20);
  EXPECT_LT(Largest({}, bytes).per_device_train_batch_size(), 20);
}

// A pinned plan is the only one that there is, whatever the job would allow.
TEST_F(LargestTest, APinnedPlanDecidesAlone) {
  (*spec_.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_KEEP;
  const int64_t bytes = SmallestPeak(7, 64, {});
  EXPECT_EQ(Largest({}, bytes).per_device_train_batch_size(), 7);
  EXPECT_EQ(LargestAtEach({}, bytes).size(), 1u);
  spec_.mutable_memory()->clear_stash();
  EXPECT_GT(Largest({}, bytes).per_device_train_batch_size(), 7);
  (*spec_.mutable_memory()->mutable_stash())["lm_head"] = v1::STASH_KIND_CHUNK;  // Pins nothing.
  EXPECT_EQ(LargestAtEach({}, bytes).size(), 3u);
}

// On a device that is large enough, the host's memory is what ends.
TEST_F(LargestTest, WhatIsOffloadedFitsTheHost) {
  (*spec_.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_OFFLOAD;
  spec_.mutable_training()->set_per_device_train_batch_size(7);
  const int64_t host = PlansFor(program_, spec_, {}, kMachine)->front().host_bytes();
  ASSERT_GT(host, 0);
  const int64_t device = int64_t{1} << 40;
  const auto rows = [&](int64_t host_bytes) {
    return LargestThatFit(program_, spec_, {}, kMachine,
                          {.memory = {.device_bytes = device, .host_bytes = host_bytes}})
        ->front()
        .per_device_train_batch_size();
  };
  EXPECT_EQ(rows(host), 7);
  EXPECT_EQ(rows(host - 1), 6);
  spec_.mutable_memory()->set_host_budget(absl::StrCat(host - 1, "B"));
  EXPECT_EQ(rows(INT64_MAX), 6);
}

}  // namespace
}  // namespace snug::server

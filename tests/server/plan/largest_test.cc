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

  v1::LargestSettings Largest(const RowLengths& lengths, int64_t bytes) const {
    return LargestThatFit(program_, spec_, lengths, kMachine, {.memory = {.device_bytes = bytes}})
        .value();
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

// A pinned plan is the only one that there is.
TEST_F(LargestTest, APinnedPlanDecidesAlone) {
  (*spec_.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_KEEP;
  const int64_t bytes = SmallestPeak(7, 64, {});
  EXPECT_EQ(Largest({}, bytes).per_device_train_batch_size(), 7);
  spec_.mutable_memory()->clear_stash();
  EXPECT_GT(Largest({}, bytes).per_device_train_batch_size(), 7);
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
        ->per_device_train_batch_size();
  };
  EXPECT_EQ(rows(host), 7);
  EXPECT_EQ(rows(host - 1), 6);
  spec_.mutable_memory()->set_host_budget(absl::StrCat(host - 1, "B"));
  EXPECT_EQ(rows(INT64_MAX), 6);
}

}  // namespace
}  // namespace snug::server

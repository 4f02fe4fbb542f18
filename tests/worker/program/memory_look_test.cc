// What is said of memory that was seen and not counted: from where on, and which part it is.
#include "worker/program/planning/memory_look.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace snug::program {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20, kGiB = 1 << 30;

std::vector<MemoryLook> Looks(std::vector<int64_t> beyond) {
  std::vector<MemoryLook> looks;
  for (size_t i = 0; i < beyond.size(); ++i)
    looks.push_back({kLooksBehind[i], kGiB, kGiB + beyond[i]});
  return looks;
}

TEST(MemoryLookTest, ItIsLookedWhereSomethingCanBeTold) {
  std::vector<int64_t> due;
  for (int64_t steps = 0; steps < 100; ++steps)
    if (IsLookDue(steps)) due.push_back(steps);
  EXPECT_THAT(due, testing::ElementsAre(0, 1, 2, 5));
}

TEST(MemoryLookTest, UpTo64MiBNothingIsSaid) {
  EXPECT_EQ(UncountedOf(kGiB, Looks({64 * kMiB}), 0).warning, "");
  EXPECT_EQ(UncountedOf(kGiB, Looks({64 * kMiB + 1}), 0).warning,
            "its process has 64 MiB of the device beyond the 1024 MiB that were counted, most of "
            "it before its first step: its context, libraries, kernels");
}

TEST(MemoryLookTest, UpToAHundredthNothingIsSaid) {
  const std::vector<MemoryLook> looks = {{0, 100 * kGiB, 101 * kGiB}};
  EXPECT_EQ(UncountedOf(kGiB, looks, 0).warning, "");
  EXPECT_EQ(UncountedOf(kGiB, looks, 101 * kGiB + 1).bytes, kGiB + 1);
  EXPECT_NE(UncountedOf(kGiB, looks, 101 * kGiB + 1).warning, "");
}

// What was promised may be used, counted or not; less is no harm.
TEST(MemoryLookTest, WhatWasPredictedIsNotBeyond) {
  EXPECT_EQ(UncountedOf(2 * kGiB, Looks({kGiB}), 0).bytes, 0);
  const Uncounted less = UncountedOf(2 * kGiB, Looks({0}), 0);
  EXPECT_EQ(less.bytes, -kGiB);
  EXPECT_EQ(less.warning, "");
  EXPECT_EQ(UncountedOf(kGiB, {{0, kGiB, 0}}, 0).bytes, 0);  // Nobody says.
}

// The driver's word is of the process alone: neighbours on its GPU are in the looks as well.
TEST(MemoryLookTest, TheDriversWordOfTheProcessCounts) {
  EXPECT_EQ(UncountedOf(kGiB, Looks({kGiB}), kGiB + kMiB).warning, "");
  EXPECT_EQ(UncountedOf(kGiB, Looks({kGiB}), kGiB + kMiB).bytes, kMiB);
  EXPECT_THAT(UncountedOf(kGiB, Looks({0, 0}), kGiB + 100 * kMiB).warning,
              HasSubstr("most of it in its context, or behind its step 1"));
}

// When it came about is not known where neighbours are in the looks.
TEST(MemoryLookTest, NoPartIsNamedByWhatNeighboursTake) {
  EXPECT_EQ(UncountedOf(kGiB, Looks({0, kGiB}), kGiB + 100 * kMiB).warning,
            "its process has 100 MiB of the device beyond the 1024 MiB that were counted");
}

TEST(MemoryLookTest, TheLargestPartIsNamed) {
  const auto part = [](std::vector<int64_t> beyond) {
    return UncountedOf(kGiB, Looks(std::move(beyond)), 0).warning;
  };
  EXPECT_THAT(part({90 * kMiB, 100 * kMiB}), HasSubstr("before its first step"));
  EXPECT_THAT(part({10 * kMiB, 100 * kMiB, 110 * kMiB}), HasSubstr("in its first step"));
  EXPECT_THAT(part({10 * kMiB, 20 * kMiB, 40 * kMiB, 100 * kMiB}),
              HasSubstr("up to its step 5: what steps leave behind"));
}

}  // namespace
}  // namespace snug::program

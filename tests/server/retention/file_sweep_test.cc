// Which files that clients have sent go: over a limit, and named by no job.
#include "server/retention/file_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(FileSweepTest, WithoutLimitsEverythingStays) {
  EXPECT_THAT(FilesToGo({}, {{.id = "a", .bytes = int64_t{1} << 50, .age = absl::Hours(90000)}}),
              IsEmpty());
}

TEST(FileSweepTest, TheNewestStay) {
  const std::vector<SentFile> files = {{.id = "d", .bytes = 5, .age = absl::Hours(1)},
                                       {.id = "c", .bytes = 5, .age = absl::Hours(2)},
                                       {.id = "b", .bytes = 6, .age = absl::Hours(3)},
                                       {.id = "a", .bytes = 1, .age = absl::Hours(4)}};
  EXPECT_THAT(FilesToGo({.count = 2}, files), ElementsAre("b", "a"));
  EXPECT_THAT(FilesToGo({.age = absl::Hours(2)}, files), ElementsAre("b", "a"));
  // One that does not fit takes no room from those behind it.
  EXPECT_THAT(FilesToGo({.bytes = 11}, files), ElementsAre("b"));
}

TEST(FileSweepTest, WhatAJobNamesStaysAndCounts) {
  const std::vector<SentFile> files = {{.id = "c"}, {.id = "b", .named = true}, {.id = "a"}};
  EXPECT_THAT(FilesToGo({.count = 2}, files), ElementsAre("a"));
  EXPECT_THAT(FilesToGo({.count = 1}, files), ElementsAre("a"));
  EXPECT_THAT(FilesToGo({.age = -absl::Seconds(1)}, files), ElementsAre("c", "a"));
}

TEST(FileSweepTest, AJobNamesAllItsDatasets) {
  v1::Job job;
  job.mutable_spec()->set_dataset("/a");
  job.mutable_spec()->set_eval_dataset("/b");
  job.mutable_spec()->add_datasets()->set_path("/c");
  NamedFiles named;
  named.Note(job);
  for (const char* path : {"/a", "/b", "/c"}) EXPECT_TRUE(named.Has(path));
  EXPECT_FALSE(named.Has("/d"));
}

}  // namespace
}  // namespace snug::server

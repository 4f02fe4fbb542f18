#include "worker/execute/gpu/child_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

namespace snug::execute {
namespace {

using testing::HasSubstr;

// What a child takes of it stays taken: nobody gives it back for the child.
class SharedBytes {
 public:
  SharedBytes() {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    taken_ = new (page) std::atomic<int64_t>(0);
  }
  ~SharedBytes() { munmap(taken_, 4096); }
  std::atomic<int64_t>& taken() { return *taken_; }

 private:
  std::atomic<int64_t>* taken_;
};

TEST(ChildMemoryTest, SeesWhatTheChildTakes) {
  SharedBytes bytes;
  const auto taken = BytesTakenByChild({.free_bytes = [&] { return 1000 - bytes.taken(); },
                                        .take =
                                            [&] {
                                              bytes.taken() = 300;
                                              return 200;
                                            }});
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->taken_bytes, 300);
  EXPECT_EQ(taken->unseen_bytes, 100);
}

// A neighbour takes 50 while the child starts, or gives 50 back while it ends.
TEST(ChildMemoryTest, TheLargerDifferenceCounts) {
  for (const auto& [readings, expected] :
       {std::pair<std::vector<int64_t>, int64_t>{{1000, 650, 950}, 350},
        {{1000, 700, 1050}, 350},
        {{1000, 700, 900}, 300}}) {
    size_t next = 0;
    const auto taken = BytesTakenByChild(
        {.free_bytes = [&] { return readings[next++]; }, .take = [] { return 0; }});
    EXPECT_EQ(taken->taken_bytes, expected);
  }
}

TEST(ChildMemoryTest, AFailureOfTheChildIsTold) {
  const auto refused =
      BytesTakenByChild({.free_bytes = [] { return 0; },
                         .take = [] { return absl::UnavailableError("there is no GPU"); }});
  EXPECT_EQ(refused.status().message(), "there is no GPU");
  const auto died = BytesTakenByChild(
      {.free_bytes = [] { return 0; }, .take = []() -> absl::StatusOr<int64_t> { _exit(1); }});
  EXPECT_THAT(died.status().message(), HasSubstr("died"));
}

}  // namespace
}  // namespace snug::execute

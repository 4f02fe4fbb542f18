#include "server/node/process_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace snug::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Pages count once they are written, and still do when they are gone.
TEST(ProcessMemoryTest, SeesTheMostThatWasEverThere) {
  const int64_t before = PeakResidentBytes(getpid());
  EXPECT_GT(before, kMiB);
  std::string large(static_cast<size_t>(64 * kMiB), 'x');
  const int64_t with = PeakResidentBytes(getpid());
  EXPECT_GT(with, before + 50 * kMiB) << large.back();
  large = std::string();
  EXPECT_GE(PeakResidentBytes(getpid()), with);
}

TEST(ProcessMemoryTest, AProcessThatIsNotThereHasNone) { EXPECT_EQ(PeakResidentBytes(-1), 0); }

}  // namespace
}  // namespace snug::server

#include "server/grpc/reset_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ResetGuardTest : public testing::Test {
 protected:
  void CountMany(const std::string& peer, int calls, absl::Duration now) {
    for (int i = 0; i < calls; ++i) guard_.Count(peer, now);
  }

  std::vector<std::string> closed_;
  ResetGuard guard_{[this](const std::string& peer) { closed_.push_back(peer); },
                    {.burst = 10, .per_second = 2}};
};

TEST_F(ResetGuardTest, WhoTakesBackManyCallsAtOnceIsClosed) {
  CountMany("fd:1", 10, absl::Seconds(5));
  EXPECT_THAT(closed_, IsEmpty());
  guard_.Count("fd:1", absl::Seconds(5));
  EXPECT_THAT(closed_, ElementsAre("fd:1"));
}

// Each connection for itself, and what is long ago is forgotten.
TEST_F(ResetGuardTest, SomeCallsAreGivenUpByEverybody) {
  for (int second = 0; second < 100; ++second)
    for (const char* peer : {"fd:1", "ipv4:127.0.0.1:80"})
      CountMany(peer, 2, absl::Seconds(second));
  EXPECT_THAT(closed_, IsEmpty());
  CountMany("fd:1", 11, absl::Seconds(200));
  EXPECT_THAT(closed_, ElementsAre("fd:1"));
}

TEST_F(ResetGuardTest, OfConnectionsThatHaveGoneNothingIsKept) {
  for (int i = 0; i < 100'000; ++i) guard_.Count(absl::StrCat("fd:", i), absl::Seconds(i));
  EXPECT_THAT(closed_, IsEmpty());
  EXPECT_LT(guard_.size(), 1000u);
}

}  // namespace
}  // namespace snug::server

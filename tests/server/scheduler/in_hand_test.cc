// Which jobs were in the daemon's hands when it ended, life after life.
#include "server/scheduler/in_hand.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

namespace snug::server {
namespace {

class InHandTest : public testing::Test {
 protected:
  InHandTest() : dir_(testing::TempDir() + "/in-hand-" + std::to_string(getpid())) {}
  ~InHandTest() override { std::filesystem::remove_all(dir_); }

  // A life that ends with the job in its hands.
  void EndWithJobInHand() const {
    const InHand in_hand(dir_);
    const std::string file = dir_ + "/a", kept = dir_ + "-kept";
    {
      const InHand::Hold hold(in_hand, "a");
      std::filesystem::copy_file(file, kept);
    }
    std::filesystem::rename(kept, file);  // Nothing ran at its end.
  }

  const std::string dir_;
};

TEST_F(InHandTest, TwoEndsMakeAJobSuspect) {
  EndWithJobInHand();
  EXPECT_FALSE(InHand(dir_).IsSuspect("a"));
  EndWithJobInHand();
  EXPECT_TRUE(InHand(dir_).IsSuspect("a"));
  EXPECT_FALSE(InHand(dir_).IsSuspect("b"));
}

// Who resumes a job that was held has looked at it: it is tried again, in the same life.
TEST_F(InHandTest, AForgottenJobIsTakenInHandAgain) {
  EndWithJobInHand();
  EndWithJobInHand();
  const InHand in_hand(dir_);
  ASSERT_TRUE(in_hand.IsSuspect("a"));
  in_hand.Forget("a");
  EXPECT_FALSE(in_hand.IsSuspect("a"));
  EndWithJobInHand();  // And counted anew.
  EXPECT_FALSE(InHand(dir_).IsSuspect("a"));
}

TEST_F(InHandTest, AJobThatLeavesTheHandsIsSuspectNoMore) {
  EndWithJobInHand();
  const InHand in_hand(dir_);
  { const InHand::Hold hold(in_hand, "a"); }
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/a"));
  EndWithJobInHand();
  EXPECT_FALSE(InHand(dir_).IsSuspect("a"));
}

}  // namespace
}  // namespace snug::server

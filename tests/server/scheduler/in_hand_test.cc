// Which jobs were in the daemon's hands when it ended, life after life.
#include "server/scheduler/in_hand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class InHandTest : public testing::Test {
 protected:
  // A life that ends with the job in its hands, for the second time in that life.
  void EndWithJobInHand() const {
    const std::string kept = path_ + "-kept";
    {
      InHand in_hand(path_);
      { const InHand::Hold done(in_hand, {"done"}), earlier(in_hand, {"a"}); }
      const InHand::Hold other(in_hand, {"other"}), hold(in_hand, {"a"});
      std::filesystem::copy_file(path_, kept);
    }
    std::filesystem::rename(kept, path_);  // Nothing ran at its end.
  }

  const TestFolder folder_{"in-hand"};
  const std::string path_ = folder_.path() + "/in-hand";
};

TEST_F(InHandTest, TwoEndsMakeAJobSuspect) {
  EndWithJobInHand();
  EXPECT_FALSE(InHand(path_).IsSuspect("a"));
  EXPECT_FALSE(InHand(path_).IsSuspect("a"));  // A life without it in hand counts for nothing.
  EndWithJobInHand();
  const InHand in_hand(path_);
  EXPECT_TRUE(in_hand.IsSuspect("a"));
  EXPECT_TRUE(in_hand.IsSuspect("other"));
  EXPECT_FALSE(in_hand.IsSuspect("done"));
}

// Who resumes a job that was held has looked at it: it is tried again, in the same life.
TEST_F(InHandTest, AForgottenJobIsTakenInHandAgain) {
  EndWithJobInHand();
  EndWithJobInHand();
  InHand in_hand(path_);
  ASSERT_TRUE(in_hand.IsSuspect("a"));
  in_hand.Forget("a");
  EXPECT_FALSE(in_hand.IsSuspect("a"));
  EXPECT_TRUE(in_hand.IsSuspect("other"));
  EXPECT_THAT(ReadText(path_), Not(HasSubstr(" a ")));
}

TEST_F(InHandTest, AJobWhoseWorkCameToAResultIsSuspectNoMore) {
  EndWithJobInHand();
  {
    InHand in_hand(path_);
    { const InHand::Hold hold(in_hand, {"a"}); }
    EXPECT_THAT(ReadText(path_), HasSubstr("1 waiting a "));
    in_hand.Forget("a");
    EXPECT_THAT(ReadText(path_), Not(HasSubstr(" a ")));
  }
  EndWithJobInHand();
  EXPECT_FALSE(InHand(path_).IsSuspect("a"));
}

TEST_F(InHandTest, AJobIsInHandUntilTheLastHold) {
  InHand in_hand(path_);
  const InHand::Hold outer(in_hand, {"a"});
  { const InHand::Hold inner(in_hand, {"a"}); }
  EXPECT_THAT(ReadText(path_), HasSubstr("0 working a "));
  in_hand.Forget("a");
  EXPECT_THAT(ReadText(path_), HasSubstr("0 working a "));
}

// Else a daemon of a million jobs would have a file of as many lines.
TEST_F(InHandTest, LinesAreUsedAgain) {
  InHand in_hand(path_);
  { const InHand::Hold first(in_hand, {"a"}), second(in_hand, {"b"}); }
  const auto size = std::filesystem::file_size(path_);
  for (int i = 0; i < 10; ++i) {
    const InHand::Hold first(in_hand, {"c"}), second(in_hand, {std::string(63, 'd')});
    EXPECT_THAT(ReadText(path_), HasSubstr("0 working " + std::string(63, 'd') + " "));
  }
  EXPECT_EQ(std::filesystem::file_size(path_), size);
}

// As those that are alike: what ends the daemon with one of them does so with each.
TEST_F(InHandTest, JobsThatAreWorkedOnTogetherAreSuspectTogether) {
  const std::vector<std::string> jobs = {"a", "b", "c"};
  for (int end = 0; end < kMaxEndsInHand; ++end) {
    InHand in_hand(path_);
    const InHand::Hold alone(in_hand, {"b"}), hold(in_hand, jobs);
    std::filesystem::copy_file(path_, path_ + "-kept",
                               std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(path_ + "-kept", path_);
  }
  const InHand in_hand(path_);
  for (const std::string& job : jobs) EXPECT_TRUE(in_hand.IsSuspect(job)) << job;
}

// An earlier version kept a file for each job.
// A tenant's job has a key of up to 127 letters.
TEST_F(InHandTest, TheLongestKeyIsSuspectAsWell) {
  const std::string key = std::string(63, 'a') + "." + std::string(63, 'b');
  for (int life = 0; life < 2; ++life) {
    const std::string kept = path_ + "-kept";
    {
      InHand in_hand(path_);
      EXPECT_FALSE(in_hand.IsSuspect(key));
      const InHand::Hold hold(in_hand, {key});
      std::filesystem::copy_file(path_, kept);
    }
    std::filesystem::rename(kept, path_);
  }
  EXPECT_TRUE(InHand(path_).IsSuspect(key));
}

// Lines of 96 bytes, as a version before wrote them.
TEST_F(InHandTest, ShorterLinesAreTakenAlong) {
  std::string text;
  for (std::string line : {"1 working a", "", "1 waiting b"}) {
    line.resize(95, ' ');
    text += line + "\n";
  }
  std::ofstream(path_) << text;
  { const InHand in_hand(path_); }
  const InHand again(path_);
  EXPECT_TRUE(again.IsSuspect("a"));
  EXPECT_FALSE(again.IsSuspect("b"));
}

TEST_F(InHandTest, AFolderOfFilesGivesWay) {
  std::filesystem::create_directories(path_);
  WriteText(path_ + "/a", "1 working\n");
  EndWithJobInHand();
  EXPECT_FALSE(InHand(path_).IsSuspect("a"));
}

}  // namespace
}  // namespace snug::server

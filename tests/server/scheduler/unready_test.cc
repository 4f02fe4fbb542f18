// Who is asked for in a visit, and in which order.
#include "server/scheduler/unready.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Answer = Unready::Answer;

class UnreadyTest : public testing::Test {
 protected:
  void Add(const std::string& id, const std::string& user, int priority = 0) {
    unready_.Add({-priority, arrivals_++, id}, user);
  }
  // Who is asked for; each is made ready unless `answers_` has another answer.
  std::vector<std::string> Visit(size_t room = 0) {
    std::vector<std::string> asked;
    left_ = unready_.Visit(
        now_, [&](const std::string&) { return room; },
        [&](const std::string& id) {
          asked.push_back(id);
          const auto answer = answers_.find(id);
          return answer == answers_.end() ? Answer::kDone : answer->second;
        });
    return asked;
  }

  Unready unready_;
  std::map<std::string, Answer> answers_;
  bool left_ = false;
  int64_t arrivals_ = 0;
  absl::Duration now_ = absl::Seconds(100);
};

TEST_F(UnreadyTest, EachIsAskedForOnceInOrder) {
  Add("a1", "a");
  Add("b1", "b");
  Add("urgent", "a", 5);
  EXPECT_THAT(Visit(), ElementsAre("urgent", "a1", "b1"));
  EXPECT_FALSE(left_);
  EXPECT_THAT(Visit(), IsEmpty());
}

// Ten thousand whose disk is away are not asked for at every tick.
TEST_F(UnreadyTest, WhatIsForLaterIsAskedForWhenItsTimeHasCome) {
  Add("a1", "a");
  Add("a2", "a");
  Add("b1", "b");
  answers_ = {{"a1", {Answer::kLater, absl::Seconds(130)}},
              {"b1", {Answer::kLater, absl::Seconds(120)}}};
  EXPECT_THAT(Visit(), ElementsAre("a1", "a2", "b1"));
  EXPECT_FALSE(left_);
  answers_.clear();
  now_ = absl::Seconds(119);
  EXPECT_THAT(Visit(), IsEmpty());
  now_ = absl::Seconds(120);
  EXPECT_THAT(Visit(), ElementsAre("b1"));
  now_ = absl::Seconds(200);
  EXPECT_THAT(Visit(), ElementsAre("a1"));
}

TEST_F(UnreadyTest, AFullPoolEndsTheVisit) {
  Add("a1", "a");
  Add("b1", "b");
  answers_ = {{"a1", Answer::kAllFull}};
  EXPECT_THAT(Visit(), ElementsAre("a1"));
  EXPECT_TRUE(left_);
  answers_.clear();
  EXPECT_THAT(Visit(), ElementsAre("a1", "b1"));
}

// However many he has, none of them is asked for until there is room, and then as many as that.
TEST_F(UnreadyTest, AFullUsersJobsStandApart) {
  for (const char* id : {"a1", "a2", "a3", "a4"}) {
    Add(id, "a");
    answers_.insert_or_assign(id, Answer::kUserFull);
  }
  Add("b1", "b");
  EXPECT_THAT(Visit(), ElementsAre("a1", "a2", "a3", "a4", "b1"));
  EXPECT_TRUE(left_);
  answers_.clear();
  Add("late", "a");
  Add("urgent", "a", 5);
  Add("b2", "b");
  EXPECT_THAT(Visit(), ElementsAre("b2"));
  EXPECT_TRUE(left_);
  EXPECT_THAT(Visit(2), ElementsAre("urgent", "a1"));
  EXPECT_TRUE(left_);
  EXPECT_THAT(Visit(9), ElementsAre("a2", "a3", "a4", "late"));
  EXPECT_FALSE(left_);
}

// It has been prepared, and the queue waits for it.
TEST_F(UnreadyTest, AJobOfNobodysLimitIsAskedForWhileItsUserIsFull) {
  Add("a1", "a");
  answers_ = {{"a1", Answer::kUserFull}};
  Visit();
  Add("prepared", "");
  EXPECT_THAT(Visit(), ElementsAre("prepared"));
}

TEST_F(UnreadyTest, AJobThatIsGoneIsNotAskedFor) {
  for (const char* id : {"a1", "a2"}) {
    Add(id, "a");
    answers_.insert_or_assign(id, Answer::kUserFull);
  }
  Visit();
  unready_.Remove({0, 0, "a1"}, "a");
  EXPECT_THAT(Visit(9), ElementsAre("a2"));
  unready_.Remove({0, 1, "a2"}, "a");
  EXPECT_THAT(Visit(9), IsEmpty());
}

}  // namespace
}  // namespace snug::server

// That processes of snug-prepare together stay within one memory.
#include "server/data/memory_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/job/errors.h"
#include "server/node/clock.h"
#include "tests/server/data/prepare_bed.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using MemorySharesTest = PrepareBed;

TEST_F(MemorySharesTest, WhoGetsNoneIsToldSo) {
  MemoryShares shares(1);
  ASSERT_TRUE(shares.Take(nullptr, absl::InfiniteDuration()).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(shares.Take(nullptr, SinceBoot())));
  const std::atomic<bool> cancelled{true};
  EXPECT_TRUE(absl::IsCancelled(shares.Take(&cancelled, absl::InfiniteDuration())));
  shares.GiveBack();
  EXPECT_TRUE(shares.Take(nullptr, SinceBoot()).ok());
  EXPECT_FALSE(shares.Take(nullptr, SinceBoot()).ok());
  shares.SetCount(2);
  EXPECT_TRUE(shares.Take(nullptr, SinceBoot()).ok());
}

// As many datasets as there are shares for, and two beside that somebody looks at: their first
// rows, a preview, ids of prompts.
TEST_F(MemorySharesTest, WhateverSnugPrepareIsStartedForHasAShare) {
  Preparer preparer = With("echo 'progress: begun' >&2; while [ ! -e " + dir_ +
                           "/end ]; do sleep 0.01; done; exit 1");
  preparer.AllowAtATime(1);
  const std::string model = dir_ + "/model";
  absl::Notification begun;
  std::vector<std::thread> users;
  users.emplace_back([&] {
    const auto say = [&](const std::string& text) {
      if (absl::StrContains(text, "begun")) begun.Notify();
    };
    EXPECT_EQ(ReasonOf(preparer.Prepare(spec_, model, {.say = say}).status()), "PREPARE_FAILED");
  });
  begun.WaitForNotification();
  const auto soon = [] {
    return Preparer::Progress{.until = SinceBoot() + absl::Milliseconds(200)};
  };
  const absl::Status other = preparer.Prepare(spec_, model, soon()).status();
  EXPECT_TRUE(absl::IsResourceExhausted(other)) << other;
  const auto look = [&](const Preparer::Progress& progress) {
    return preparer.Preview(spec_, {.model_dir = model, .rows = 1}, progress).status();
  };
  for (int i = 0; i < 2; ++i)
    users.emplace_back([&] { EXPECT_EQ(ReasonOf(look({})), "PREPARE_FAILED"); });
  while (!absl::IsResourceExhausted(look(soon()))) absl::SleepFor(absl::Milliseconds(10));
  const google::protobuf::RepeatedPtrField<v1::SamplePrompt> prompts;
  const Preparer::AskedPrompts asked = {
      .spec = spec_, .model_dir = model, .chat_template = "", .prompts = prompts, .max_tokens = 8};
  const absl::Status tokenised = preparer.Tokenise(asked, dir_ + "/datasets/asked", soon());
  EXPECT_TRUE(absl::IsResourceExhausted(tokenised)) << tokenised;
  WriteText(dir_ + "/end", "");
  for (std::thread& user : users) user.join();
  EXPECT_EQ(ReasonOf(look({})), "PREPARE_FAILED");
}

}  // namespace
}  // namespace snug::server

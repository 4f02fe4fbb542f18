#include "server/plan/tape_view.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "tests/server/plan/toy_config.h"
#include "worker/program/tape_text.h"

namespace snug::server {
namespace {

class TapeViewTest : public testing::Test {
 protected:
  TapeViewTest() {
    spec_.set_method(v1::JobSpec::METHOD_FULL);
    FillDefaults(spec_, 128);
    program_ = program::BuildProgram(ToyConfig(), ModeOf(spec_)).value();
    plans_ = PlansFor(program_, spec_, {}, machine_).value();
  }
  program::Tape TapeOf(const v1::Plan& plan) const {
    return server::TapeOf(program_, OptionsFor(program_, spec_, {}, machine_), plan).value();
  }
  static int64_t TotalOf(const v1::LiveBytes& live) {
    return live.stash_bytes() + live.scratch_bytes() + live.workspace_bytes();
  }

  const PlanMachine machine_ = {.threads = 2};
  v1::JobSpec spec_;
  program::Program program_;
  std::vector<v1::Plan> plans_;
};

TEST_F(TapeViewTest, TheTapeIsThePlans) {
  for (const v1::Plan& plan : plans_) {
    EXPECT_EQ(TapeOf(plan).arena_bytes, plan.arena_bytes()) << plan.name();
  }
}

// However few points there are, the highest instant is among them; forward lies before backward.
TEST_F(TapeViewTest, StretchesKeepThePeak) {
  for (const v1::Plan& plan : plans_) {
    const program::Tape tape = TapeOf(plan);
    const int64_t peak = plan.memory().stash_bytes() + plan.memory().scratch_bytes() +
                         plan.memory().workspace_bytes();
    for (size_t most : {1000000, 40, 7}) {
      const std::vector<v1::LiveBytes> timeline = TimelineOf(tape, most);
      EXPECT_LE(timeline.size(), std::min(most + 1, tape.instructions.size()));
      int64_t highest = 0;
      for (const v1::LiveBytes& live : timeline) highest = std::max(highest, TotalOf(live));
      EXPECT_LE(highest, peak);  // Which has what alignment takes as well.
      EXPECT_GT(highest, peak - plan.arena_bytes() / 100);
      EXPECT_TRUE(std::is_sorted(
          timeline.begin(), timeline.end(),
          [](const auto& a, const auto& b) { return !a.backward() && b.backward(); }));
      EXPECT_FALSE(timeline.front().backward());
      EXPECT_TRUE(timeline.back().backward());
    }
  }
}

// What is held in a form is named, and is as large as its codes are.
TEST_F(TapeViewTest, FormsAreNamed) {
  auto& stash = *spec_.mutable_memory()->mutable_stash();
  spec_.mutable_memory()->set_fidelity(v1::FIDELITY_APPROXIMATE);
  stash["*.mlp.gate"] = v1::STASH_KIND_TWO_BIT;
  stash["*.norm1.out"] = v1::STASH_KIND_INT8;
  const std::vector<v1::Plan> plans = PlansFor(program_, spec_, {}, machine_).value();
  int64_t codes = 0, two_bits = 0;
  for (const v1::LiveBytes& live : TimelineOf(TapeOf(plans.front()), 1000000)) {
    for (const auto& [kind, bytes] : live.form_bytes()) {
      EXPECT_TRUE(kind == "int8" || kind == "two_bit") << kind;
      int64_t& most = kind == "int8" ? codes : two_bits;
      most = std::max(most, bytes);
    }
  }
  const int64_t layers = program_.config.layers, tokens = plans.front().key().tokens();
  EXPECT_EQ(codes, layers * tokens * program::CodedRowBytes(program_.config.width, 8));
  EXPECT_GE(two_bits, layers * tokens * program::TwoBitRowBytes(program_.config.mlp_width));
}

TEST_F(TapeViewTest, EveryInstructionIsALine) {
  const program::Tape tape = TapeOf(plans_.back());
  const std::string text = program::TapeText(tape);
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            tape.instructions.size() + 1);
  EXPECT_TRUE(absl::StrContains(text, " again forward mlp.")) << text;
  EXPECT_TRUE(absl::StartsWith(text, "arena of ")) << text;
}

}  // namespace
}  // namespace snug::server

// Answers are those of PlansFor, whatever was asked before.
#include "server/plan/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "google/protobuf/util/message_differencer.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "tests/server/plan/toy_config.h"

namespace snug::server {
namespace {

struct Asked {
  v1::JobSpec spec;
  program::ModelConfig config = ToyConfig();
  RowLengths lengths;
  PlanMachine machine = {.threads = 2, .context_bytes = 1000};
  program::PlanList list = {};
};

class PlanCacheTest : public testing::Test {
 protected:
  PlanCacheTest() {
    asked_.spec.set_method(v1::JobSpec::LORA);
    asked_.spec.mutable_training()->set_packing(false);
    FillDefaults(asked_.spec, 128);
  }

  std::vector<v1::Plan> Ask(const Asked& asked, PlanCache& cache) {
    const auto program = program::BuildProgram(asked.config, ModeOf(asked.spec)).value();
    return cache.PlansFor(program, asked.spec, asked.lengths, asked.machine, asked.list).value();
  }
  bool Knows(const Asked& asked) {
    const int64_t before = cache_.hits();
    Ask(asked, cache_);
    return cache_.hits() > before;
  }
  void ExpectRight(const Asked& asked) {
    const auto program = program::BuildProgram(asked.config, ModeOf(asked.spec)).value();
    const auto wanted =
        PlansFor(program, asked.spec, asked.lengths, asked.machine, asked.list).value();
    const auto plans = Ask(asked, cache_);
    ASSERT_EQ(plans.size(), wanted.size());
    for (size_t i = 0; i < plans.size(); ++i)
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(plans[i], wanted[i]));
  }

  PlanCache cache_{1 << 20};
  Asked asked_;
};

TEST_F(PlanCacheTest, EachThingThatPlansDependOnIsAsked) {
  const std::vector<std::function<void(Asked&)>> changes = {
      [](Asked&) {},
      [](Asked& asked) { asked.spec.mutable_training()->set_per_device_train_batch_size(3); },
      [](Asked& asked) { asked.spec.mutable_lora()->set_r(4); },
      [](Asked& asked) { asked.spec.mutable_memory()->set_budget("1GiB"); },
      [](Asked& asked) { asked.spec.set_eval_dataset("/e.jsonl"); },
      [](Asked& asked) { asked.config.layers += 1; },
      [](Asked& asked) {
        asked.lengths.train = {7, 50};
      },
      [](Asked& asked) {
        asked.lengths.train = {8, 49};
      },
      [](Asked& asked) { asked.machine.threads = 5; },
      [](Asked& asked) { asked.machine.context_bytes = 2000; },
      [](Asked& asked) { asked.machine.gpu = true; },
      [](Asked& asked) { asked.list.most_mixes = 2; },
      [](Asked& asked) { asked.list.recompute_plans = false; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    Asked asked = asked_;
    changes[i](asked);
    EXPECT_FALSE(Knows(asked));
    ExpectRight(asked);
  }
}

TEST_F(PlanCacheTest, JobsThatDifferInNameOrRateAreOneQuestion) {
  ExpectRight(asked_);
  asked_.spec.set_display_name("other");
  (*asked_.spec.mutable_labels())["sweep"] = "2";
  asked_.spec.mutable_training()->set_learning_rate(1e-5);
  asked_.spec.mutable_training()->set_seed(9);
  EXPECT_TRUE(Knows(asked_));
}

TEST_F(PlanCacheTest, TheLongestUnaskedGoesFirst) {
  Asked second = asked_, third = asked_;
  second.spec.mutable_lora()->set_r(4);
  third.spec.mutable_lora()->set_r(2);
  size_t one = 0;
  for (const v1::Plan& plan : Ask(asked_, cache_)) one += plan.SpaceUsedLong();
  PlanCache small(2 * one + one / 2);
  for (const Asked* asked : {&asked_, &second, &asked_, &third, &asked_}) Ask(*asked, small);
  EXPECT_EQ(small.hits(), 2);
  Ask(second, small);
  EXPECT_EQ(small.hits(), 2);  // It had made room for the third.
  PlanCache none(1);
  EXPECT_FALSE(Ask(asked_, none).empty());
}

}  // namespace
}  // namespace snug::server

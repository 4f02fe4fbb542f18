// Answers are those of PlansFor, whatever was asked before.
#include "server/scheduler/plan_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "google/protobuf/util/message_differencer.h"
#include "server/job/check_job.h"
#include "server/job/check_spec.h"
#include "tests/server/plan/toy_config.h"
#include "worker/program/planning/predict.h"

namespace snug::server {
namespace {

struct Asked {
  v1::JobSpec spec;
  std::string weights_digest;
  program::ModelConfig config = ToyConfig();
  RowLengths lengths;
  std::vector<PlannedDevice> devices = {{.name = "cpu:0",
                                         .capacity_bytes = int64_t{1} << 30,
                                         .machine = {.threads = 2, .context_bytes = 1000}}};
  PlansWanted wanted = PlansWanted::kForPlacing;
};

class PlanCacheTest : public testing::Test {
 protected:
  PlanCacheTest() {
    asked_.spec.set_method(v1::JobSpec::METHOD_LORA);
    asked_.spec.mutable_training()->set_packing(false);
    FillDefaults(asked_.spec, 128);
  }

  static CheckedJob JobOf(const Asked& asked) {
    auto program = program::BuildProgram(asked.config, ModeOf(asked.spec)).value();
    return {.spec = asked.spec,
            .model_dir = "/model",
            .program = std::make_shared<const program::Program>(std::move(program)),
            .weights_digest = asked.weights_digest};
  }
  static SharedPlans Ask(const Asked& asked, PlanCache& cache) {
    return cache.PlansFor(JobOf(asked), asked.lengths, asked.devices, asked.wanted).value();
  }
  bool Knows(const Asked& asked) {
    const int64_t before = cache_.hits();
    Ask(asked, cache_);
    return cache_.hits() > before;
  }
  // As a cache answers that has never been asked.
  void ExpectRight(const Asked& asked) {
    PlanCache fresh(1 << 20);
    const SharedPlans wanted = Ask(asked, fresh), plans = Ask(asked, cache_);
    EXPECT_EQ(fresh.hits(), 0);
    ASSERT_EQ(plans->size(), wanted->size());
    for (const auto& [device, there] : *wanted) {
      const std::vector<v1::Plan>& known = plans->at(device);
      ASSERT_EQ(known.size(), there.size());
      for (size_t i = 0; i < there.size(); ++i)
        EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(known[i], there[i]));
    }
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
      [](Asked& asked) { asked.weights_digest = "d"; },
      [](Asked& asked) { asked.config.layers += 1; },
      [](Asked& asked) {
        asked.lengths.train = {7, 50};
      },
      [](Asked& asked) {
        asked.lengths.train = {8, 49};
      },
      [](Asked& asked) { asked.devices[0].machine.threads = 5; },
      [](Asked& asked) { asked.devices[0].machine.context_bytes = 2000; },
      [](Asked& asked) { asked.devices[0].machine.gpu = true; },
      [](Asked& asked) { asked.devices[0].capacity_bytes = 1 << 20; },
      [](Asked& asked) { asked.devices[0].name = "cpu:1"; },
      [](Asked& asked) { asked.devices.push_back(asked.devices[0]); },
      [](Asked& asked) { asked.wanted = PlansWanted::kAll; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    Asked asked = asked_;
    changes[i](asked);
    EXPECT_FALSE(Knows(asked));
    ExpectRight(asked);
  }
}

// For each of its shares, in their order, what PlansFor says; on a CPU weights are held in common.
TEST_F(PlanCacheTest, ADeviceHasThePlansOfEachOfItsMachines) {
  asked_.weights_digest = "d";
  asked_.devices.push_back(asked_.devices[0]);
  asked_.devices[0].machine.threads = 4;
  asked_.devices.push_back({.name = "gpu:0",
                            .capacity_bytes = int64_t{1} << 30,
                            .machine = {.threads = 2, .gpu = true, .context_bytes = 1000}});
  const SharedPlans plans = Ask(asked_, cache_);
  ASSERT_EQ(plans->size(), 2u);
  const CheckedJob job = JobOf(asked_);
  std::vector<v1::Plan> wanted;
  for (const int threads : {4, 2}) {
    program::PlanList list = {.recompute_plans = false, .most_mixes = 16};
    list.limits = {int64_t{1} << 30};
    const PlanMachine machine = {.threads = threads, .context_bytes = 1000};
    const std::vector<v1::Plan> made = PlansFor(*job.program, job.spec, {}, machine, list).value();
    wanted.insert(wanted.end(), made.begin(), made.end());
  }
  const std::vector<v1::Plan>& there = plans->at("cpu:0");
  ASSERT_EQ(there.size(), wanted.size());
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_EQ(there[i].key().SerializeAsString(), wanted[i].key().SerializeAsString());
    EXPECT_EQ(there[i].peak_bytes(), wanted[i].peak_bytes());
    EXPECT_EQ(there[i].threads(), wanted[i].threads());
    EXPECT_EQ(there[i].shared().digest(), "d");
    EXPECT_EQ(there[i].shared().bytes(), program::FrozenBytes(*job.program));
  }
  for (const v1::Plan& plan : plans->at("gpu:0")) EXPECT_FALSE(plan.has_shared());
}

TEST_F(PlanCacheTest, JobsThatDifferInNameOrRateAreOneQuestion) {
  const SharedPlans first = Ask(asked_, cache_);
  asked_.spec.set_display_name("other");
  (*asked_.spec.mutable_labels())["sweep"] = "2";
  asked_.spec.mutable_training()->set_learning_rate(1e-5);
  asked_.spec.mutable_training()->set_seed(9);
  asked_.spec.set_max_slowdown(3.0);
  EXPECT_EQ(Ask(asked_, cache_), first);  // The same ones, not a copy.
  EXPECT_EQ(cache_.hits(), 1);
}

TEST_F(PlanCacheTest, TheLongestUnaskedGoesFirst) {
  Asked second = asked_, third = asked_;
  second.spec.mutable_lora()->set_r(4);
  third.spec.mutable_lora()->set_r(2);
  size_t one = 0;
  for (const v1::Plan& plan : Ask(asked_, cache_)->at("cpu:0")) one += plan.SpaceUsedLong();
  PlanCache small(2 * one + one / 2);
  for (const Asked* asked : {&asked_, &second, &asked_, &third, &asked_}) Ask(*asked, small);
  EXPECT_EQ(small.hits(), 2);
  Ask(second, small);
  EXPECT_EQ(small.hits(), 2);  // It had made room for the third.
  PlanCache none(1);
  EXPECT_FALSE(Ask(asked_, none)->empty());
}

}  // namespace
}  // namespace snug::server

// What a plan, changed between steps, and gradients that are released leave of a run: all of it.
#include <functional>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"
#include "tests/worker/train/trainer_testing.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

using execute::TestDevice;
using program::DType;
using program::FullMode;
using program::LoraMode;
using program::TrainingMode;
using ::testing::HasSubstr;

using TrainerPlansTest = TrainerTest;

// What a plan would be ordered as.
PlanOrder OrderOf(AttemptOptions attempt, int64_t number, int recomputed) {
  const auto program =
      *program::BuildProgram(*program::ReadModelConfig(attempt.model_dir), attempt.mode);
  attempt.plan = program::NamedPlanOf(program, program::RecomputePlan(program, recomputed));
  const program::Components bytes = PredictionOf(attempt).bytes;
  return {.number = number,
          .plan = attempt.plan,
          .head_rows = attempt.head_rows,
          .cap_bytes = bytes.total(),
          .promised = bytes};
}

// What of a run must not depend on its plans: losses, and all trained parameters.
struct Course {
  std::vector<double> losses;
  std::string weights;
};

// Steps, before each of which something may be done to the trainer.
Course Train(const AttemptOptions& attempt, const std::function<void(Trainer&)>& before) {
  TestDevice().allocator().SetCap(INT64_MAX);
  TestDevice().allocator().ResetPeak();
  const auto trainer = Trainer::Create(attempt, TestDevice());
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  Course course;
  for (int step = 0; step < 12; ++step) {
    before(**trainer);
    const auto result = (*trainer)->AccumulateGradients();
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE((*trainer)->ApplyGradients(*result).ok());
    course.losses.push_back(result->loss);
  }
  for (const execute::ParameterView& view : (*trainer)->parameters().views())
    if (view.gradient)
      course.weights.append(view.value.as<char>(), static_cast<size_t>(view.value.bytes()));
  return course;
}

// To smaller and larger ones and back, with dropout: after each change the worker holds what was
// promised for the plan in force, to the byte, and ends as if nothing had been.
TEST_F(TrainerPlansTest, PlansChangeBetweenStepsAndWhatIsTrainedDoesNot) {
  TrainingMode lora = LoraMode();
  lora.adapter.dropout = 0.25;
  for (const TrainingMode& mode : {lora, FullMode(), FullMode(DType::kBF16)}) {
    AttemptOptions attempt = Attempt(mode);
    attempt.context_bytes = kContextBytes;
    attempt.promised = PredictionOf(attempt).bytes;
    attempt.cap_bytes = attempt.promised->total();
    const Course undisturbed = Train(attempt, [](Trainer&) {});
    int64_t orders = 0;
    std::set<int64_t> sizes;
    const Course changed = Train(attempt, [&](Trainer& trainer) {
      ++orders;
      const PlanOrder order = OrderOf(attempt, orders, static_cast<int>(orders * 2 % 3));
      const auto answer = trainer.ChangePlan(order);
      SNUG_ASSERT_OK(answer);
      EXPECT_EQ(answer->refusal, "");
      EXPECT_EQ(answer->number, orders);
      EXPECT_EQ(answer->global_step, orders - 1);
      EXPECT_EQ(answer->current_bytes, order.cap_bytes);
      EXPECT_EQ(trainer.memory().peak_bytes, order.cap_bytes);
      EXPECT_EQ(trainer.plan_name(), order.plan.name);
      sizes.insert(answer->current_bytes);
    });
    EXPECT_GE(sizes.size(), 2u);
    EXPECT_EQ(changed.losses, undisturbed.losses);
    EXPECT_FALSE(undisturbed.weights.empty());
    EXPECT_TRUE(changed.weights == undisturbed.weights);
  }
}

// Of another program, with other bytes than the worker finds, above its own cap: it says why, holds
// what it held, and trains on as before.
TEST_F(TrainerPlansTest, AnOrderThatCannotBeObeyedLeavesThePlan) {
  AttemptOptions attempt = Attempt(FullMode());
  attempt.plan = OrderOf(attempt, 0, 2).plan;
  attempt.promised = PredictionOf(attempt).bytes;
  attempt.cap_bytes = attempt.promised->total();
  const PlanOrder keep = OrderOf(attempt, 1, 0);
  PlanOrder unknown = keep, other = keep, capped = keep;
  unknown.plan.layer_recipe.pop_back();
  other.promised->arena += 64;
  --capped.cap_bytes;
  const Course undisturbed = Train(attempt, [](Trainer&) {});
  const Course refusing = Train(attempt, [&](Trainer& trainer) {
    for (const auto& [order, why] : {std::pair(&unknown, "layers"),
                                     {&other, "bytes by the plan"},
                                     {&capped, "out of memory"}}) {
      const auto answer = trainer.ChangePlan(*order);
      SNUG_ASSERT_OK(answer);
      EXPECT_THAT(answer->refusal, HasSubstr(why));
      EXPECT_EQ(answer->current_bytes, attempt.cap_bytes);
      EXPECT_EQ(trainer.plan_name(), attempt.plan.name);
    }
  });
  EXPECT_EQ(refusing.losses, undisturbed.losses);
  EXPECT_TRUE(refusing.weights == undisturbed.weights);
}

// Of logits the worker has those of as many rows as its plan says.
TEST_F(TrainerPlansTest, TheHeadHasThePlansRows) {
  ToyModel model;
  model.sizes.vocabulary = 3000;
  AttemptOptions attempt = Attempt(FullMode(), model);
  const int64_t usual = PredictionOf(attempt).bytes.arena;
  attempt.head_rows = 2;
  attempt.promised = PredictionOf(attempt).bytes;
  EXPECT_LT(attempt.promised->arena, usual / 2);
  const auto trainer = Trainer::Create(attempt, TestDevice());
  SNUG_ASSERT_OK(trainer);
  EXPECT_TRUE((*trainer)->AccumulateGradients().ok());
}

// Another plan brings its own, there and back: each takes what was promised for it.
TEST_F(TrainerPlansTest, AnotherPlanHasItsRowsOfTheHead) {
  ToyModel model;
  model.sizes.vocabulary = 3000;
  AttemptOptions attempt = Attempt(FullMode(), model);
  const PlanOrder usual = OrderOf(attempt, 2, 0);
  const auto trainer = Trainer::Create(attempt, TestDevice());
  SNUG_ASSERT_OK(trainer);
  attempt.head_rows = 2;
  const PlanOrder few = OrderOf(attempt, 1, 0);
  EXPECT_LT(few.promised->arena, usual.promised->arena / 2);
  for (const PlanOrder& order : {few, usual}) {
    const auto answer = (*trainer)->ChangePlan(order);
    SNUG_ASSERT_OK(answer);
    EXPECT_EQ(answer->refusal, "");
    EXPECT_TRUE((*trainer)->AccumulateGradients().ok());
  }
}

// Weights after `steps` steps, and the norms of their gradients.
std::pair<std::vector<float>, std::vector<double>> Trained(const AttemptOptions& attempt,
                                                           int steps) {
  const auto trainer = *Trainer::Create(attempt, TestDevice());
  std::pair<std::vector<float>, std::vector<double>> trained;
  for (int i = 0; i < steps; ++i) {
    const auto step = trainer->AccumulateGradients();
    EXPECT_TRUE(step.ok() && trainer->ApplyGradients(*step).ok()) << step.status();
    if (step.ok()) trained.second.push_back(step->gradient_norm);
  }
  for (size_t i = 0; i < trainer->program().parameters.size(); ++i) {
    if (!trainer->program().parameters[i].trainable) continue;
    const execute::View& exact = trainer->parameters().exact(i);
    trained.first.insert(trained.first.end(), exact.as<float>(),
                         exact.as<float>() + exact.elements());
  }
  return trained;
}

// An update in backward is the update behind it, to the bit; a tied head keeps its gradient.
TEST_F(TrainerPlansTest, ReleasedGradientsTrainTheSameWeights) {
  TrainingMode coded = FullMode(DType::kBF16);
  coded.moments = program::MomentKind::k8Bit;
  TrainingOptions training = ToyTraining();
  training.max_grad_norm = 0.0;
  training.accumulation = 1;
  for (const TrainingMode& mode : {FullMode(), coded, LoraMode()}) {
    const auto [weights, norms] = Trained(Attempt(mode, {}, training), 3);
    const auto [released, released_norms] = Trained(Attempt(Releasing(mode), {}, training), 3);
    EXPECT_EQ(released, weights);
    for (size_t i = 0; i < norms.size(); ++i)
      EXPECT_NEAR(released_norms[i], norms[i], 1e-12 * norms[i]);
  }
}

// Where moments and masters lie changes no bit of what is trained. What they took of the device
// they take of the host, beside what the plan offloads.
TEST_F(TrainerPlansTest, AnOptimizerOnTheHostTrainsTheSameWeights) {
  TrainingMode coded = FullMode(DType::kBF16);
  coded.moments = program::MomentKind::k8Bit;
  for (const TrainingMode& mode : {coded, LoraMode(), Releasing(FullMode(DType::kBF16))}) {
    TrainingOptions training = ToyTraining();
    training.max_grad_norm = 0.0;
    training.accumulation = 1;
    const AttemptOptions here = Attempt(mode, {}, training),
                         there = Attempt(WithOptimizerOnHost(mode), {}, training);
    EXPECT_EQ(Trained(there, 3), Trained(here, 3));
    const program::Components device = PredictionOf(here).bytes, host = PredictionOf(there).bytes;
    EXPECT_GT(device.optimizer, 0);
    EXPECT_EQ(host.optimizer, 0);
    EXPECT_EQ(host.host - device.host, device.optimizer);
    EXPECT_EQ(device.total() - host.total(), device.optimizer);
  }
}

}  // namespace
}  // namespace snug::train

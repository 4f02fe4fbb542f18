// How far an inexact gradient is from the exact one: the sums by hand, and a trainer's measurement
// against gradients of two trainers, one of which is exact; it leaves no trace in what is trained.
#include "worker/train/drift.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"
#include "tests/worker/train/trainer_testing.h"
#include "worker/program/planning/exact_step.h"
#include "worker/train/trainer.h"

namespace snug::train {
namespace {

using execute::TestDevice;
using program::DType;
using program::FullMode;
using program::LoraMode;
using program::Stash;
using program::TrainingMode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

constexpr uint32_t Bit(Stash stash) { return uint32_t{1} << static_cast<int>(stash); }

execute::View Of(std::vector<float>& values) {
  const auto elements = static_cast<int64_t>(values.size());
  return {values.data(), 1, elements, DType::kF32};
}

// What is added to a kind is added up before it is divided; what counts for no kind is not there.
TEST(DriftSumsTest, AreThoseOfAllParametersOfAKind) {
  const std::vector<uint32_t> kinds = {Bit(Stash::kInt8), 0, Bit(Stash::kInt8) | Bit(Stash::kInt4)};
  DriftSums sums(kinds);
  std::vector<float> inexact[] = {{3.0f, 0.0f}, {9.0f}, {0.0f, 5.0f}},
                     exact[] = {{3.0f, 4.0f}, {1.0f}, {12.0f, 5.0f}};
  for (int32_t p = 0; p < 3; ++p)
    ASSERT_TRUE(sums.Add(TestDevice(), p, Of(inexact[p]), Of(exact[p])).ok());
  const DriftByKind found = sums.Kinds();
  EXPECT_THAT(found, UnorderedElementsAre(Key("int8"), Key("int4")));
  EXPECT_DOUBLE_EQ(found.at("int4").cosine, 25.0 / (5.0 * 13.0));
  EXPECT_DOUBLE_EQ(found.at("int4").relative_error, 12.0 / 13.0);
  EXPECT_DOUBLE_EQ(found.at("int8").cosine, 34.0 / std::sqrt(34.0 * 194.0));
  EXPECT_DOUBLE_EQ(found.at("int8").relative_error, std::sqrt(160.0 / 194.0));
}

// Squares that fp32 would lose beside larger ones, and beyond its range, count in full.
TEST(DriftSumsTest, AddUpInDouble) {
  const std::vector<uint32_t> kinds = {Bit(Stash::kInt8)};
  std::vector<float> exact(100'001, 1e-3f), inexact(100'001, 2e-3f);
  exact[0] = inexact[0] = 1e20f;
  DriftSums sums(kinds);
  ASSERT_TRUE(sums.Add(TestDevice(), 0, Of(inexact), Of(exact)).ok());
  EXPECT_NEAR(sums.Kinds().at("int8").relative_error, std::sqrt(1e5) * 1e-3 / 1e20, 1e-26);
}

TEST(DriftSumsTest, OfNothingOrNaNThereIsNoDrift) {
  const std::vector<uint32_t> kinds = {Bit(Stash::kInt8), Bit(Stash::kInt4), Bit(Stash::kTwoBit)};
  std::vector<float> zero = {0.0f, 0.0f}, some = {1.0f, 2.0f},
                     broken = {1.0f, std::numeric_limits<float>::quiet_NaN()};
  DriftSums sums(kinds);
  ASSERT_TRUE(sums.Add(TestDevice(), 0, Of(some), Of(zero)).ok());
  ASSERT_TRUE(sums.Add(TestDevice(), 1, Of(broken), Of(some)).ok());
  ASSERT_TRUE(sums.Add(TestDevice(), 2, Of(zero), Of(some)).ok());
  const DriftByKind found = sums.Kinds();
  EXPECT_THAT(found, UnorderedElementsAre(Key("two_bit")));
  EXPECT_EQ(found.at("two_bit").cosine, 0.0);
  EXPECT_EQ(found.at("two_bit").relative_error, 1.0);
}

// At least once, and at most in one step of so many, whatever attempt makes it.
TEST(DriftScheduleTest, TheSecondStepIsMeasuredAndThenEverySoManieth) {
  DriftSchedule schedule = {.every = 200, .first = 1, .last = 1000};
  std::vector<int64_t> measured;
  for (int64_t step = 1; step <= 1000; ++step) {
    if (!schedule.IsDue(step)) continue;
    measured.push_back(schedule.measured = step);
  }
  EXPECT_EQ(measured, (std::vector<int64_t>{2, 202, 402, 602, 802}));
  EXPECT_FALSE((DriftSchedule{.every = 0, .first = 1, .last = 9}).IsDue(2));
  EXPECT_TRUE((DriftSchedule{.every = 200, .first = 1, .last = 1}).IsDue(1));
  EXPECT_FALSE((DriftSchedule{.every = 200, .first = 51, .last = 60}).IsDue(51));
  EXPECT_TRUE((DriftSchedule{.every = 200, .first = 51, .last = 60}).IsDue(52));
  // The attempt before had measured step 150, and got no further than a checkpoint of step 100.
  EXPECT_FALSE((DriftSchedule{.every = 200, .last = 400, .measured = 150}).IsDue(101));
  EXPECT_TRUE((DriftSchedule{.every = 200, .last = 400, .measured = 150}).IsDue(350));
}

// The attempt under a plan that keeps all that it can by a kind, measured, in the bytes promised.
AttemptOptions KeptBy(AttemptOptions attempt, Stash kind, int64_t drift_steps = 200) {
  const auto program =
      *program::BuildProgram(*program::ReadModelConfig(attempt.model_dir), attempt.mode);
  attempt.plan = program::NamedPlanOf(program, *program::PinnedPlan(program, {{"*", kind}}));
  attempt.drift_steps = drift_steps;
  attempt.promised = PredictionOf(attempt).bytes;
  attempt.cap_bytes = attempt.promised->total();
  return attempt;
}

std::unique_ptr<Trainer> Begin(const AttemptOptions& attempt) {
  TestDevice().allocator().SetCap(INT64_MAX);
  TestDevice().allocator().ResetPeak();
  auto trainer = Trainer::Create(attempt, TestDevice());
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  return trainer.ok() ? *std::move(trainer) : nullptr;
}

// What of a run a measurement must leave alone.
struct Course {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  int64_t peak_bytes = 0;
  bool operator==(const Course&) const = default;
};

// `measured`: before each of its steps but the first.
Course Train(const AttemptOptions& attempt, bool measured) {
  const auto trainer = Begin(attempt);
  Course course;
  for (int step = 0; step < 4; ++step) {
    if (measured && step > 0) {
      const auto drift = trainer->MeasureDrift();
      EXPECT_TRUE(drift.ok()) << drift.status();
      EXPECT_EQ(drift->kinds.size(), 1u);
    }
    const auto result = trainer->AccumulateGradients();
    EXPECT_TRUE(result.ok() && trainer->ApplyGradients(*result).ok()) << result.status();
    course.losses.push_back(result->loss);
    course.norms.push_back(result->gradient_norm);
  }
  for (size_t i = 0; i < trainer->program().parameters.size(); ++i) {
    if (!trainer->program().parameters[i].trainable) continue;
    const execute::View& exact = trainer->parameters().exact(i);
    course.weights.insert(course.weights.end(), exact.as<float>(),
                          exact.as<float>() + exact.elements());
  }
  course.peak_bytes = trainer->memory().peak_bytes;
  return course;
}

using DriftTest = TrainerTest;

// With dropout, accumulation, masters: the same bits, in the bytes that were predicted for it.
TEST_F(DriftTest, AMeasurementLeavesNoTrace) {
  TrainingMode lora = LoraMode();
  lora.adapter.dropout = 0.25;
  for (const TrainingMode& mode : {lora, FullMode(), FullMode(DType::kBF16)}) {
    for (const Stash kind : {Stash::kInt8, Stash::kSampled}) {
      const AttemptOptions attempt = KeptBy(Attempt(mode), kind);
      const Course measured = Train(attempt, true);
      EXPECT_TRUE(measured == Train(attempt, false)) << program::RowOf(kind).name;
      EXPECT_EQ(measured.peak_bytes, attempt.cap_bytes);
    }
  }
}

// The gradients of each parameter in one step.
std::vector<std::vector<float>> GradientsOf(const AttemptOptions& attempt, int64_t* tokens) {
  const auto trainer = Begin(attempt);
  const auto step = trainer->AccumulateGradients();
  EXPECT_TRUE(step.ok()) << step.status();
  *tokens = step->tokens;
  std::vector<std::vector<float>> gradients;
  for (const execute::ParameterView& view : trainer->parameters().views()) {
    const float* values = view.gradient.as<float>();
    gradients.emplace_back(values, values + (values == nullptr ? 0 : view.gradient.elements()));
  }
  return gradients;
}

// For the parameters of layers, in double.
KindDrift DriftOf(const program::Program& program, const std::vector<std::vector<float>>& inexact,
                  const std::vector<std::vector<float>>& exact) {
  double products = 0.0, inexact_squares = 0.0, exact_squares = 0.0, differences = 0.0;
  for (const program::Block& block : program.blocks) {
    for (const int parameter : block.parameters) {
      const auto p = static_cast<size_t>(parameter);
      for (size_t i = 0; block.layer >= 0 && i < exact[p].size(); ++i) {
        const double g = inexact[p][i], e = exact[p][i];
        products += g * e;
        inexact_squares += g * g;
        exact_squares += e * e;
        differences += (g - e) * (g - e);
      }
    }
  }
  return {.cosine = products / std::sqrt(inexact_squares * exact_squares),
          .relative_error = std::sqrt(differences / exact_squares)};
}

// In an attempt that has just begun.
Drift FirstDrift(const AttemptOptions& attempt) {
  const auto drift = Begin(attempt)->MeasureDrift();
  EXPECT_TRUE(drift.ok()) << drift.status();
  return drift.ok() ? *drift : Drift();
}

// Layers are so many that the exact step of the whole micro-batch takes less than the plan's own.
TEST_F(DriftTest, AMeasurementIsThatOfTheGradientsOfAWholeStep) {
  TrainingOptions training = ToyTraining();
  training.accumulation = 1;
  ToyModel model;
  model.sizes.layers = 16;
  for (const TrainingMode& mode : {FullMode(), LoraMode()}) {
    const AttemptOptions keep = Attempt(mode, model, training);
    const auto program =
        *program::BuildProgram(*program::ReadModelConfig(keep.model_dir), keep.mode);
    int64_t tokens = 0;
    const auto exact = GradientsOf(keep, &tokens);
    std::map<Stash, double> errors;
    for (const Stash kind : {Stash::kInt8, Stash::kInt4, Stash::kSampled}) {
      const AttemptOptions attempt = KeptBy(keep, kind);
      const Drift drift = FirstDrift(attempt);
      const std::string name = program::RowOf(kind).name;
      ASSERT_THAT(drift.kinds, UnorderedElementsAre(Key(name)));
      const KindDrift& found = drift.kinds.at(name);
      const KindDrift wanted = DriftOf(program, GradientsOf(attempt, &tokens), exact);
      ASSERT_EQ(found.tokens, tokens);
      EXPECT_EQ(found.global_step, 1);
      EXPECT_NEAR(found.cosine, wanted.cosine, 1e-6) << name;
      EXPECT_NEAR(found.relative_error, wanted.relative_error, 1e-5) << name;
      errors[kind] = found.relative_error;
    }
    EXPECT_GT(errors[Stash::kInt8], 0.0);
    EXPECT_LT(errors[Stash::kInt8], errors[Stash::kInt4]);
  }
}

// What a tape would give whose codes are read back in another place.
TEST_F(DriftTest, AGradientInTheWrongPlacesIsFarOff) {
  const AttemptOptions keep = Attempt(FullMode());
  const auto program = *program::BuildProgram(*program::ReadModelConfig(keep.model_dir), keep.mode);
  int64_t tokens = 0;
  auto exact = GradientsOf(keep, &tokens), moved = exact;
  std::vector<uint32_t> kinds(exact.size());
  for (const program::Block& block : program.blocks)
    for (const int parameter : block.parameters)
      if (block.layer >= 0) kinds[static_cast<size_t>(parameter)] = Bit(Stash::kInt8);
  DriftSums same(kinds), apart(kinds);
  for (size_t p = 0; p < exact.size(); ++p) {
    std::reverse(moved[p].begin(), moved[p].end());
    const auto parameter = static_cast<int32_t>(p);
    ASSERT_TRUE(same.Add(TestDevice(), parameter, Of(exact[p]), Of(exact[p])).ok());
    ASSERT_TRUE(apart.Add(TestDevice(), parameter, Of(moved[p]), Of(exact[p])).ok());
  }
  EXPECT_NEAR(same.Kinds().at("int8").cosine, 1.0, 1e-12);
  EXPECT_EQ(same.Kinds().at("int8").relative_error, 0.0);
  EXPECT_LT(apart.Kinds().at("int8").cosine, 0.3);
  EXPECT_GT(apart.Kinds().at("int8").relative_error, 1.0);
}

// A document that takes more than there is, exactly, is cut.
TEST_F(DriftTest, OfALongDocumentAPartIsMeasured) {
  TrainingOptions training = ToyTraining();
  training.max_seq_length = 300;
  training.batch_rows = 1;
  ToyModel model;
  model.sizes.layers = 1;
  const AttemptOptions attempt =
      KeptBy(Attempt(FullMode(), model, training, {300, 300}), Stash::kInt4);
  const auto trainer = Begin(attempt);
  const auto drift = trainer->MeasureDrift();
  ASSERT_TRUE(drift.ok()) << drift.status();
  ASSERT_THAT(drift->kinds, UnorderedElementsAre(Key("int4")));
  const KindDrift& found = drift->kinds.at("int4");
  EXPECT_LT(found.tokens, 300);
  EXPECT_GE(found.tokens, program::kLeastMeasuredTokens);
  EXPECT_GT(found.cosine, 0.0);
  EXPECT_GT(found.relative_error, 1e-4);
  EXPECT_EQ(trainer->memory().peak_bytes, attempt.cap_bytes);
}

// An exact plan is not measured, nor one whose job asks for nothing: neither takes a byte for it.
TEST_F(DriftTest, WhatIsNotMeasuredTakesNothing) {
  const AttemptOptions attempt = Attempt(FullMode());
  EXPECT_TRUE(Begin(KeptBy(attempt, Stash::kRecompute))->is_exact());
  EXPECT_TRUE(Begin(KeptBy(attempt, Stash::kInt8, /*drift_steps=*/0))->is_exact());
  EXPECT_FALSE(Begin(KeptBy(attempt, Stash::kInt8))->is_exact());
  TrainingOptions training = ToyTraining();
  training.accumulation = 1;
  const AttemptOptions released = Attempt(Releasing(FullMode()), {}, training);
  EXPECT_EQ(KeptBy(released, Stash::kInt8).cap_bytes, KeptBy(released, Stash::kInt8, 0).cap_bytes);
  const auto drift = Begin(KeptBy(released, Stash::kInt8))->MeasureDrift();
  ASSERT_TRUE(drift.ok()) << drift.status();
  EXPECT_THAT(drift->kinds, IsEmpty());
  EXPECT_THAT(drift->not_measured, HasSubstr("memory.gradients: released"));
}

// To an inexact plan and back: each has the bytes of its own measurement.
TEST_F(DriftTest, APlanThatComesLaterIsMeasuredAsWell) {
  AttemptOptions keep = Attempt(FullMode());
  keep.drift_steps = 200;
  const AttemptOptions coded = KeptBy(keep, Stash::kInt8);
  const auto trainer = Begin(keep);
  EXPECT_TRUE(trainer->is_exact());
  const auto answer = trainer->ChangePlan(
      {.number = 1, .plan = coded.plan, .cap_bytes = coded.cap_bytes, .promised = coded.promised});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->refusal, "");
  EXPECT_EQ(answer->current_bytes, coded.cap_bytes);
  EXPECT_THAT(trainer->MeasureDrift()->kinds, UnorderedElementsAre(Key("int8")));
}

}  // namespace
}  // namespace snug::train

#include "tests/worker/program/plan_checks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "gtest/gtest.h"
#include "tests/worker/program/interpreter.h"
#include "tests/worker/program/models.h"
#include "worker/program/lower.h"
#include "worker/program/stages.h"

namespace snug::program {
namespace {

std::vector<std::vector<double>> RandomParameters(const Program& program, std::mt19937& random) {
  std::normal_distribution<double> normal(0.0, 0.4);
  std::vector<std::vector<double>> parameters;
  for (const Parameter& parameter : program.parameters) {
    parameters.emplace_back(static_cast<size_t>(parameter.elements()));
    for (double& x : parameters.back()) x = normal(random) + (parameter.decay ? 0.0 : 1.0);
  }
  return parameters;
}

ToyBatch MixedBatch(std::mt19937& random) {
  ToyBatch batch;
  batch.document_lengths = {5, 1, 4};
  for (int n = 0; n < 10; ++n) {
    batch.ids.push_back(static_cast<int>(random() % 11));
    batch.labels.push_back(n % 3 == 0 ? -1 : static_cast<int>(random() % 11));
  }
  batch.source_lengths = {2, 4, 1};
  for (int n = 0; n < 7; ++n) batch.source_ids.push_back(static_cast<int>(random() % 11));
  return batch;
}

// Each document has a class, at its last token.
ToyBatch BatchOfDocuments(const Program& program, std::mt19937& random) {
  ToyBatch batch = MixedBatch(random);
  std::fill(batch.labels.begin(), batch.labels.end(), -1);
  size_t end = 0;
  for (const int length : batch.document_lengths) {
    end += static_cast<size_t>(length);
    batch.labels[end - 1] = static_cast<int>(random() % static_cast<size_t>(program.config.labels));
  }
  return batch;
}

// Two images, which have as many patches as the model's have.
ToyBatch BatchOfImages(const Program& program, std::mt19937& random) {
  ToyBatch batch;
  const auto patches = static_cast<int>(program.config.tokens_of_image());
  const auto labels = static_cast<size_t>(program.config.labels);
  for (int n = 0; n < 2 * patches; ++n) {
    batch.ids.push_back(static_cast<int>(random() % 11));
    batch.labels.push_back(n % patches == 0 ? static_cast<int>(random() % labels) : -1);
  }
  batch.document_lengths = {patches, patches};
  return batch;
}

// Tokens have classes, or none.
ToyBatch BatchOfTokens(const Program& program, std::mt19937& random) {
  ToyBatch batch = MixedBatch(random);
  for (int& label : batch.labels) label %= static_cast<int>(program.config.labels);
  return batch;
}

ToyBatch BatchFor(const Program& program, std::mt19937& random) {
  if (!program.config.stages.empty()) return BatchOfImages(program, random);
  if (program.config.of_documents()) return BatchOfDocuments(program, random);
  return program.config.classifies() ? BatchOfTokens(program, random) : MixedBatch(random);
}

LowerOptions OptionsFor(const Program& program, const ToyBatch& batch) {
  LowerOptions options;
  options.key = {.tokens = static_cast<int64_t>(batch.ids.size()),
                 .documents = static_cast<int64_t>(batch.document_lengths.size()),
                 .longest_document = *absl::c_max_element(batch.document_lengths),
                 .trained = static_cast<int64_t>(batch.trained().size()),
                 .source_tokens = static_cast<int64_t>(batch.source_ids.size()),
                 .longest_source = 4};
  options.head_rows = 3;
  options.key.merged[0] = options.key.tokens / kToyMerge;
  if (!program.config.stages.empty()) options.key = WithStages(options.key, program.config);
  return options;
}

// Of layers: the head's has one line.
bool HasLoops(const Tape& tape) {
  return std::any_of(tape.instructions.begin(), tape.instructions.end(),
                     [](const Instruction& line) { return line.loop.lines > 1; });
}

// A loop may come where the plan without it has other ops: sums of gradients have another order.
void ExpectWithinRounding(const Interpreter& got, const Interpreter& expected) {
  for (size_t p = 0; p < expected.gradients().size(); ++p) {
    double most = 0.0;
    for (const double gradient : expected.gradients()[p]) most = std::max(most, std::abs(gradient));
    for (size_t i = 0; i < expected.gradients()[p].size(); ++i)
      ASSERT_NEAR(got.gradients()[p][i], expected.gradients()[p][i], 1e-12 * most);
  }
}

}  // namespace

void ExpectAnyPlanGivesTheGradientsOfKeep(const Program& program, int plans, std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  Interpreter keep(program, parameters), other(program, parameters);
  const absl::StatusOr<Tape> keep_tape =
      Lower(program, RecomputePlan(program, 0), OptionsFor(program, batch));
  ASSERT_TRUE(keep_tape.ok()) << keep_tape.status();
  const double loss = keep.Run(*keep_tape, batch);
  ASSERT_TRUE(std::isfinite(loss));
  for (int i = 0; i < plans; ++i) {
    const size_t stashes = i % 3 == 0 ? 2 : kStashes;
    const Plan plan =
        RandomPlan(program, 3, random, /*segments=*/i % 2 == 1, {stashes, /*loops=*/i % 3 == 1});
    const absl::StatusOr<Tape> tape = Lower(program, plan, OptionsFor(program, batch));
    ASSERT_TRUE(tape.ok()) << tape.status();
    if (i == plans / 2) other.copies().Delay();
    ASSERT_EQ(other.Run(*tape, batch), loss) << "plan " << i;
    if (HasLoops(*tape)) {
      SCOPED_TRACE(i);
      ASSERT_NO_FATAL_FAILURE(ExpectWithinRounding(other, keep));
      continue;
    }
    ASSERT_TRUE(other.gradients() == keep.gradients()) << "plan " << i;
  }
  for (int k = 0; k <= static_cast<int>(program.config.layers); ++k) {
    const Tape tape = *Lower(program, RecomputePlan(program, k), OptionsFor(program, batch));
    ASSERT_EQ(other.Run(tape, batch), loss);
    ASSERT_EQ(other.gradients(), keep.gradients()) << "recompute " << k;
  }
}

void ExpectTheGradientsOfKeep(const Program& program, const std::vector<Plan>& plans,
                              std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  Interpreter keep(program, parameters), other(program, parameters);
  const double loss =
      keep.Run(*Lower(program, RecomputePlan(program, 0), OptionsFor(program, batch)), batch);
  ASSERT_TRUE(std::isfinite(loss));
  for (const Plan& plan : plans) {
    ASSERT_EQ(other.Run(*Lower(program, plan, OptionsFor(program, batch)), batch), loss)
        << plan.name;
    ASSERT_TRUE(other.gradients() == keep.gradients()) << plan.name;
  }
}

void ExpectAnyOrderOfCopiesGivesTheGradientsOfKeep(const Program& program, int plans,
                                                   std::mt19937& random) {
  std::vector<Plan> offloading;
  for (int i = 0; i < plans; ++i)
    offloading.push_back(RandomPlan(program, 3, random, /*segments=*/i % 2 == 1, /*stashes=*/3));
  const std::vector<Plan> keep(offloading.size(), RecomputePlan(program, 0));
  ExpectAnyOrderGivesTheGradientsOf(program, offloading, keep, random);
}

void ExpectAnyOrderGivesTheGradientsOf(const Program& program, const std::vector<Plan>& plans,
                                       const std::vector<Plan>& expected, std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  Interpreter other(program, parameters), soon(program, parameters), late(program, parameters),
      between(program, parameters), beside(program, parameters);
  late.copies().Delay();
  between.copies().DelayAtRandom(/*seed=*/2);
  execute::CpuStreams streams([] {
    thread_local std::mt19937 delays(1);
    if (delays() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 500));
  });
  beside.copies().Use(streams);
  for (size_t i = 0; i < plans.size(); ++i) {
    SCOPED_TRACE(i);
    const Tape tape = *Lower(program, plans[i], OptionsFor(program, batch));
    const double loss = other.Run(*Lower(program, expected[i], OptionsFor(program, batch)), batch);
    ASSERT_TRUE(std::isfinite(loss));
    for (Interpreter* order : {&soon, &late, &between, &beside}) {
      ASSERT_EQ(order->Run(tape, batch), loss);
      ASSERT_TRUE(order->gradients() == other.gradients());
    }
  }
}

void ExpectEachWaitForACopyMatters(const Program& program, const Plan& plan, std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  Tape tape = *Lower(program, plan, OptionsFor(program, batch));
  Interpreter late(program, parameters);
  late.copies().Delay();
  late.Run(tape, batch);
  const auto gradients = late.gradients();
  int waits = 0;
  for (Instruction& line : tape.instructions) {
    const bool waits_for_host =
        line.kind == Instruction::Kind::kWait && line.stream == kComputeStream && line.recomputed;
    if (!waits_for_host) continue;
    ++waits;
    line.stream = kCopyStream;
    late.Run(tape, batch);
    line.stream = kComputeStream;
    EXPECT_NE(late.gradients(), gradients) << "wait " << waits;
  }
  EXPECT_GT(waits, 10);
}

void ExpectOtherMasksAgainChangeTheGradients(const Program& program, const Plan& plan,
                                             std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  const Tape tape = *Lower(program, plan, OptionsFor(program, batch));
  Interpreter same(program, parameters), other(program, parameters);
  other.DrawOtherMasksAgain();
  const double loss = same.Run(tape, batch);
  EXPECT_EQ(other.Run(tape, batch), loss);
  EXPECT_NE(other.gradients(), same.gradients());
}

void ExpectTheSameReleased(const Program& kept, const Program& released, int plans,
                           std::mt19937& random) {
  const auto parameters = RandomParameters(kept, random);
  const ToyBatch batch = BatchFor(kept, random);
  Interpreter keep(kept, parameters), other(released, parameters);
  for (int i = 0; i < plans; ++i) {
    const Plan plan = RandomPlan(kept, 3, random, /*segments=*/i % 2 == 1, kStashes);
    const Tape expected = *Lower(kept, plan, OptionsFor(kept, batch));
    const Tape tape = *Lower(released, plan, OptionsFor(released, batch));
    ASSERT_EQ(other.Run(tape, batch), keep.Run(expected, batch)) << "plan " << i;
    ASSERT_TRUE(other.gradients() == keep.gradients()) << "plan " << i;
    const auto updates = std::count_if(
        tape.instructions.begin(), tape.instructions.end(),
        [](const Instruction& line) { return line.kind == Instruction::Kind::kUpdate; });
    ASSERT_EQ(updates, std::count_if(released.parameters.begin(), released.parameters.end(),
                                     [](const Parameter& p) { return p.released; }));
  }
}

void ExpectOnlyTwoBitsChangeTheGradients(const Program& program, const Plan& coded,
                                         const Plan& exact, std::mt19937& random) {
  const auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  Interpreter keep(program, parameters), other(program, parameters);
  const double loss =
      keep.Run(*Lower(program, RecomputePlan(program, 0), OptionsFor(program, batch)), batch);
  other.UseTwoBitSlope([](Activation, double) { return 1.0; });
  EXPECT_EQ(other.Run(*Lower(program, coded, OptionsFor(program, batch)), batch), loss);
  EXPECT_NE(other.gradients(), keep.gradients());
  EXPECT_EQ(other.Run(*Lower(program, exact, OptionsFor(program, batch)), batch), loss);
  EXPECT_EQ(other.gradients(), keep.gradients());
}

void ExpectFiniteDifferences(const Program& program, std::mt19937& random) {
  auto parameters = RandomParameters(program, random);
  const ToyBatch batch = BatchFor(program, random);
  LowerOptions options = OptionsFor(program, batch);
  const Tape step =
      *Lower(program, RandomPlan(program, 3, random, /*segments=*/false, kStashes), options);
  options.training = false;
  const Tape forward = *Lower(program, RecomputePlan(program, 0), options);
  Interpreter interpreter(program, parameters);
  const double loss = interpreter.Run(step, batch);
  const auto gradients = interpreter.gradients();
  EXPECT_EQ(interpreter.Run(forward, batch), loss);
  for (size_t p = 0; p < parameters.size(); ++p) {
    if (!program.parameters[p].trainable) continue;
    const size_t i = random() % parameters[p].size();
    // A larger step would show the third derivative: a norm of a vector near zero bends sharply.
    const double kept = parameters[p][i], h = 1e-6;
    parameters[p][i] = kept + h;
    const double above = interpreter.Run(forward, batch);
    parameters[p][i] = kept - h;
    const double below = interpreter.Run(forward, batch);
    parameters[p][i] = kept;
    EXPECT_NEAR(gradients[p][i], (above - below) / (2 * h), 1e-6 * (1 + std::abs(gradients[p][i])))
        << program.parameters[p].key;
  }
}

}  // namespace snug::program

// What an attempt takes of its GPU by the driver's count, beside its own: emulated, so that
// something can be planted that nobody counts.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/train/toy_job.h"
#include "worker/link/worker_link.h"
#include "worker/train/run_attempt.h"

namespace snug::train {
namespace {

using checkpoint::TempFolder;
using execute::EmulatedRuntime;
using program::MemoryLook;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20, kContextBytes = 3 * kMiB;
constexpr int64_t kBefore = -1;  // The attempt, as a number of steps.

// Hears where the attempt stands, and does something about it.
class Listener final : public link::WorkerLink {
 public:
  using Act = std::function<void(Listener& link, int64_t steps)>;
  explicit Listener(Act act) : act_(std::move(act)) { act_(*this, kBefore); }

  void ReportProgress(const TrainingProgress& progress, const link::MemoryReport& memory) override {
    looks = memory.looks;
    act_(*this, progress.global_step);
  }
  void ReportCheckpoint(const link::CheckpointReport&) override {}
  void ReportResult(const AttemptResult&) override {}
  link::Command command() const override { return link::Command::kNone; }
  std::optional<PlanOrder> TakePlanOrder() override { return std::exchange(order, std::nullopt); }
  void AnswerPlanOrder(const PlanAnswer&) override {}
  std::optional<PlanOrder> AskForSmallerPlan(const Shortage&) override { return std::nullopt; }

  std::vector<MemoryLook> looks;
  std::optional<PlanOrder> order;

 private:
  const Act act_;
};

AttemptOptions MakeAttempt(const TempFolder& folder) {
  const ToyModel model;
  WriteModel(folder / "model", model);
  WriteData(folder / "data", {7, 3}, model.sizes.vocabulary);
  TrainingOptions training = ToyTraining();
  training.max_steps = 5;
  AttemptOptions attempt = ToyAttempt(folder.path(), program::LoraMode(), training);
  attempt.device = "gpu:0";
  attempt.context_bytes = attempt.unseen_bytes = kContextBytes;
  return attempt;
}

class GpuMemoryTest : public testing::Test {
 protected:
  // All that there were under the last plan.
  std::vector<MemoryLook> LooksOfRun(const Listener::Act& act) {
    Listener link(act);
    const std::atomic<bool> nobody_stops_it = false;
    const AttemptResult result = RunAttempt(attempt_, *gpu_, link, nobody_stops_it);
    EXPECT_EQ(result.outcome, AttemptResult::Outcome::kSucceeded) << result.message;
    return link.looks;
  }
  // Whatever `bytes` says for a number of steps is lost then.
  std::string WarningWith(const std::function<int64_t(int64_t steps)>& bytes) {
    const auto looks = LooksOfRun([&](Listener&, int64_t steps) {
      static_cast<EmulatedRuntime&>(gpu_->runtime()).Leak(bytes(steps));
    });
    return program::UncountedOf(predicted_bytes(), looks, /*process_bytes=*/0).warning;
  }
  int64_t predicted_bytes() const { return PredictionOf(attempt_).bytes.total(); }

  const TempFolder folder_;
  const AttemptOptions attempt_ = MakeAttempt(folder_);
  const std::unique_ptr<execute::GpuDevice> gpu_ = execute::OpenTestGpu();
};

std::vector<int64_t> StepsOf(const std::vector<MemoryLook>& looks) {
  std::vector<int64_t> steps;
  for (const MemoryLook& look : looks) steps.push_back(look.steps);
  return steps;
}

TEST_F(GpuMemoryTest, WhatIsSeenIsWhatWasPredicted) {
  const auto looks = LooksOfRun([](Listener&, int64_t) {});
  EXPECT_THAT(StepsOf(looks), ElementsAre(0, 1, 2, 5));
  for (const MemoryLook& look : looks) {
    EXPECT_EQ(look.counted_bytes, predicted_bytes());
    EXPECT_EQ(look.seen_bytes, look.counted_bytes);
  }
  EXPECT_EQ(program::UncountedOf(predicted_bytes(), looks, 0).warning, "");
}

TEST_F(GpuMemoryTest, WhatIsLostBeforeTheFirstStepIsOfTheContext) {
  EXPECT_THAT(WarningWith([](int64_t steps) { return steps == kBefore ? 100 * kMiB : 0; }),
              HasSubstr("before its first step"));
}

TEST_F(GpuMemoryTest, WhatTheFirstStepLoadsIsItsOwn) {
  EXPECT_THAT(WarningWith([](int64_t steps) { return steps == 0 ? 100 * kMiB : 0; }),
              HasSubstr("in its first step"));
}

TEST_F(GpuMemoryTest, WhatEachStepLosesAddsUp) {
  EXPECT_THAT(WarningWith([](int64_t steps) { return steps > 0 ? 30 * kMiB : 0; }),
              HasSubstr("up to its step 5"));
}

TEST_F(GpuMemoryTest, AnotherPlanIsLookedAtAnew) {
  const auto looks = LooksOfRun([&](Listener& link, int64_t steps) {
    if (steps == 2 && link.looks.size() == 3)
      link.order = PlanOrder{.number = 1, .plan = attempt_.plan};
  });
  EXPECT_THAT(StepsOf(looks), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace snug::train

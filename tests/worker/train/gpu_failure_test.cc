// A GPU that fails in the middle of an attempt: emulated, as no real one does it when asked.
#include <atomic>
#include <filesystem>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/train/run_on.h"
#include "tests/worker/train/toy_job.h"
#include "worker/checkpoint/checkpoint.h"

namespace snug::train {
namespace {

using checkpoint::TempFolder;
using execute::EmulatedRuntime;
using execute::OpenTestGpu;
using Outcome = AttemptResult::Outcome;

constexpr int kPlaces = 12;

// Saves after each of two steps, exports, merges.
AttemptOptions MakeAttempt(const TempFolder& folder) {
  const ToyModel model;
  WriteModel(folder / "model", model);
  WriteData(folder / "data", {7, 3}, model.sizes.vocabulary);
  TrainingOptions training = ToyTraining();
  training.max_steps = 2;
  training.save_steps = 1;
  AttemptOptions attempt = ToyAttempt(folder.path(), program::LoraMode(), training);
  attempt.device = "gpu:0";
  attempt.merge = true;
  return attempt;
}

// The n-th thing that the attempt has the GPU do fails; 0: none. How many there were.
int64_t RunWithFailure(const AttemptOptions& attempt, int64_t n, AttemptResult& result) {
  const auto gpu = OpenTestGpu();
  auto& runtime = static_cast<EmulatedRuntime&>(gpu->runtime());
  if (n > 0) runtime.FailAt(n);
  result = RunOn(*gpu, attempt);
  return runtime.issued();
}

// The attempt is not to blame and another may do better; what it has saved is whole.
TEST(GpuFailureTest, WhereverTheGpuFailsTheAttemptEndsAsItsFailure) {
  int64_t all = 0;
  for (int place = 0; place <= kPlaces; ++place) {
    const TempFolder folder;
    const AttemptOptions attempt = MakeAttempt(folder);
    const int64_t n = place == 0 ? 0 : 1 + (all - 1) * (place - 1) / (kPlaces - 1);
    AttemptResult result;
    const int64_t issued = RunWithFailure(attempt, n, result);
    if (place == 0) {
      ASSERT_EQ(result.outcome, Outcome::kSucceeded) << result.message;
      all = issued;
      continue;
    }
    SCOPED_TRACE(testing::Message() << n << " of " << all);
    EXPECT_EQ(result.outcome, Outcome::kFailed);
    EXPECT_EQ(result.failure_class, FailureClass::kInfrastructure) << result.message;
    EXPECT_EQ(result.reason, "INFRASTRUCTURE");
    EXPECT_TRUE(absl::StartsWith(result.message, "gpu:0 failed")) << result.message;
    EXPECT_TRUE(absl::StrContains(result.message, "cudaErrorECCUncorrectable")) << result.message;
    EXPECT_FALSE(std::filesystem::exists(attempt.attempt_dir + "/output"));
    const auto saved = checkpoint::List(attempt.checkpoints_dir);
    for (const std::string& path : saved.value_or(std::vector<std::string>{}))
      EXPECT_TRUE(checkpoint::Verify(path).ok()) << path;
  }
}

// Its last checkpoint is not the one that the stop was to leave.
TEST(GpuFailureTest, AStopWhoseSaveFailsIsNone) {
  const std::atomic<bool> stop = true;
  int64_t all = 0;
  for (const bool fails : {false, true}) {
    const TempFolder folder;
    const AttemptOptions attempt = MakeAttempt(folder);
    const auto link = link::WorkerLink::Dial(attempt);
    const auto gpu = OpenTestGpu();
    auto& runtime = static_cast<EmulatedRuntime&>(gpu->runtime());
    if (fails) runtime.FailAt(all);
    const AttemptResult result = RunAttempt(attempt, *gpu, *link, stop);
    EXPECT_EQ(result.outcome, fails ? Outcome::kFailed : Outcome::kStopped) << result.message;
    EXPECT_EQ(checkpoint::List(attempt.checkpoints_dir)->size(), fails ? 0u : 1u);
    all = runtime.issued();
  }
}

}  // namespace
}  // namespace snug::train

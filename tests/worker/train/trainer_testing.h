// A fixture for what a trainer does with real files, without a daemon.
#ifndef TESTS_WORKER_TRAIN_TRAINER_TESTING_H_
#define TESTS_WORKER_TRAIN_TRAINER_TESTING_H_

#include <cstdint>
#include <filesystem>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"

namespace snug::train {

inline program::TrainingMode Releasing(program::TrainingMode mode) {
  mode.release_gradients = true;
  return mode;
}

inline program::TrainingMode WithOptimizerOnHost(program::TrainingMode mode) {
  mode.optimizer_on_host = true;
  return mode;
}

inline const std::vector<int64_t> kRows = {7, 20, 3, 12, 2, 9, 16, 5};
inline constexpr int64_t kContextBytes = 12'345'678;

class TrainerTest : public ::testing::Test {
 protected:
  // The allocator is the process's: every test begins with all of it.
  void SetUp() override {
    execute::TestDevice().allocator().SetCap(INT64_MAX);
    execute::TestDevice().allocator().ResetPeak();
  }

  AttemptOptions Attempt(const program::TrainingMode& mode, const ToyModel& model = {},
                         const TrainingOptions& training = ToyTraining(),
                         const std::vector<int64_t>& rows = kRows) {
    std::filesystem::remove_all(folder_ / "model");
    WriteModel(folder_ / "model", model);
    WriteData(folder_ / "data", rows, model.sizes.vocabulary);
    return ToyAttempt(folder_.path(), mode, training);
  }

  const checkpoint::TempFolder folder_;
};

}  // namespace snug::train

#endif  // TESTS_WORKER_TRAIN_TRAINER_TESTING_H_

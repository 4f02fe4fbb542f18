#include "server/node/attempt_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"
#include "server/node/launcher.h"
#include "server/node/session.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class AttemptFilesTest : public testing::Test {
 protected:
  AttemptFilesTest()
      : state_(testing::TempDir() + "/attempt-" + std::to_string(getpid())),
        dir_(AttemptDir(state_, "job-a", 2)) {
    fs::create_directories(dir_);
  }
  ~AttemptFilesTest() override { fs::remove_all(state_); }

  // A shell script in the place of the worker.
  pid_t Launch(const std::string& script, const Device& device = {.name = "cpu:0"}) {
    const std::string worker = state_ + "/worker.sh";
    std::ofstream(worker) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(worker, fs::perms::owner_all);
    v1::Assignment assignment;
    assignment.set_attempt_dir(dir_);
    assignment.set_checkpoints_dir(CheckpointsDir(state_, "job-a"));
    const std::string shim = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-shim";
    const LauncherSettings settings = {.shim = shim,
                                       .worker = device.is_gpu() ? "/no/such" : worker,
                                       .worker_cuda = device.is_gpu() ? worker : "/no/such",
                                       .state_dir = state_};
    return LaunchAttempt(settings, device, assignment).value();
  }
  ExitRecord WaitForEnd() {
    while (ShimLives(dir_)) absl::SleepFor(absl::Milliseconds(5));
    return ReadExitRecord(dir_, "job-a", 2).value().value_or(ExitRecord{.exit_code = -2});
  }

  const std::string state_;
  const std::string dir_;
};

TEST_F(AttemptFilesTest, LockIsHeldFromTheSpawnToTheExitRecord) {
  const pid_t shim = Launch("sleep 0.2; exit 4");
  EXPECT_TRUE(ShimLives(dir_));
  EXPECT_FALSE(TakeAttemptLock(dir_).ok());
  const ExitRecord record = WaitForEnd();
  EXPECT_EQ(record.exit_code, 4);
  EXPECT_EQ(record.signal, 0);
  EXPECT_EQ(ShimPid(dir_), shim);
  ReapShim(shim);
}

TEST_F(AttemptFilesTest, SignalOfTheWorkerIsRecorded) {
  Launch("kill -KILL $$");
  EXPECT_EQ(WaitForEnd().signal, 9);
}

TEST_F(AttemptFilesTest, WorkerThatCannotBeStartedLeavesARecord) {
  v1::Assignment assignment;
  assignment.set_attempt_dir(dir_);
  assignment.set_checkpoints_dir(CheckpointsDir(state_, "job-a"));
  const std::string shim = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-shim";
  ASSERT_TRUE(LaunchAttempt({.shim = shim, .worker = "/no/such", .state_dir = state_},
                            {.name = "cpu:0"}, assignment)
                  .ok());
  EXPECT_EQ(WaitForEnd().exit_code, 127);
}

// Whatever the daemon itself was told of GPUs.
TEST_F(AttemptFilesTest, AWorkerOfAGpuSeesThatGpuAlone) {
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  Device device{.name = "gpu:3"};
  device.gpu.uuid = "GPU-aa";
  Launch("env | grep -E '^CUDA_(DEV|MOD|VIS)' | sort > " + dir_ + "/seen", device);
  EXPECT_EQ(WaitForEnd().exit_code, 0);
  EXPECT_EQ(ReadSmallFile(dir_ + "/seen", 1000).value(),
            "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_MODULE_LOADING=LAZY\n"
            "CUDA_VISIBLE_DEVICES=GPU-aa\n");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

// What would change a job's numbers or its speed without a word in its file.
TEST_F(AttemptFilesTest, AWorkerDoesNotSeeWhatChangesCuda) {
  const char* const kHidden[] = {"NVIDIA_TF32_OVERRIDE", "CUDA_LAUNCH_BLOCKING",
                                 "CUDA_FORCE_PTX_JIT", "CUBLAS_WORKSPACE_CONFIG"};
  for (const char* name : kHidden) setenv(name, "1", 1);
  setenv("CUDA_CACHE_PATH", "/cache", 1);
  Device device{.name = "gpu:3"};
  device.gpu.uuid = "GPU-aa";
  Launch("env | grep -E '^(NVIDIA|CUBLAS|CUDA_(L|F|CA))' > " + dir_ + "/seen; true", device);
  EXPECT_EQ(WaitForEnd().exit_code, 0);
  EXPECT_EQ(ReadSmallFile(dir_ + "/seen", 1000).value(), "CUDA_CACHE_PATH=/cache\n");
  for (const char* name : kHidden) unsetenv(name);
  unsetenv("CUDA_CACHE_PATH");
}

// The worker leaves a grandchild in a session of its own; the shim takes it down before it ends.
TEST_F(AttemptFilesTest, NothingOfTheWorkerStays) {
  Launch("setsid sleep 1000 & echo $! > " + state_ + "/pid; exit 0");
  WaitForEnd();
  pid_t pid = 0;
  std::ifstream(state_ + "/pid") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_NE(kill(pid, 0), 0);
}

// The shim was killed: its worker lives on, is found by session and mark, and by nothing less.
TEST_F(AttemptFilesTest, OrphansAreFoundBySessionAndMark) {
  const pid_t shim = Launch("exec sleep 1000");
  while (SessionMembers(shim, dir_).empty()) absl::SleepFor(absl::Milliseconds(5));
  kill(shim, SIGKILL);
  waitpid(shim, nullptr, 0);
  EXPECT_FALSE(ShimLives(dir_));
  EXPECT_FALSE(ReadExitRecord(dir_, "job-a", 2).value().has_value());
  EXPECT_TRUE(SessionMembers(shim, "/another/attempt").empty());
  EXPECT_EQ(SessionMembers(shim, dir_).size(), 1u);
  EXPECT_EQ(SignalSession(shim, dir_, SIGKILL), 1);
  while (!SessionMembers(shim, dir_).empty()) absl::SleepFor(absl::Milliseconds(5));
}

TEST_F(AttemptFilesTest, ExitRecordOfAnotherAttemptIsNotBelieved) {
  std::ofstream(dir_ + "/exit.json") << R"({"schema":1,"job":"job-b","epoch":2,"exit_code":0})";
  EXPECT_TRUE(absl::IsDataLoss(ReadExitRecord(dir_, "job-a", 2).status()));
  std::ofstream(dir_ + "/exit.json") << R"({"schema":1,"job":)";
  EXPECT_TRUE(absl::IsDataLoss(ReadExitRecord(dir_, "job-a", 2).status()));
}

TEST_F(AttemptFilesTest, ResultIsReadAsJson) {
  EXPECT_FALSE(ReadResult(dir_).value().has_value());
  std::ofstream(dir_ + "/result.json") << R"({"outcome":"SUCCEEDED","added_later":1})";
  EXPECT_EQ(ReadResult(dir_).value()->outcome(), v1::WorkerResult::SUCCEEDED);
  std::ofstream(dir_ + "/result.json") << "{";
  EXPECT_TRUE(absl::IsDataLoss(ReadResult(dir_).status()));
}

}  // namespace
}  // namespace snug::server

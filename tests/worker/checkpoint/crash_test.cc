// A process killed at any moment of Save, a disk that is full at any point of it: there is the
// checkpoint, whole, or there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/checkpoint.h"

namespace snug::checkpoint {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 400;  // 1.6 MB a tensor: a kill lands inside a write as often as outside.
constexpr int64_t kColumns = 1000;

Tensors LargeTensors(const std::string& prefix, int64_t step) {
  Tensors tensors;
  tensors.AddF32(prefix + "w", {kRows, kColumns},
                 std::vector<float>(kRows * kColumns, static_cast<float>(step)));
  return tensors;
}

absl::Status SaveStep(const std::string& dir, int64_t step) {
  return Save(dir, StateAt(step), LargeTensors("", step).list(), LargeTensors("m.", step).list())
      .status();
}

// Runs `body` in a child; its return value is the exit code.
pid_t Spawn(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    const int code = body();
    std::cout.flush();
    std::fflush(nullptr);
    _exit(code);
  }
  return child;
}

int WaitFor(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

// Every checkpoint of the folder is sound and holds its own step's values. Gives the last step.
int64_t CheckAll(const std::string& dir) {
  int64_t last = 0;
  const auto paths = List(dir);
  EXPECT_TRUE(paths.ok());
  for (const std::string& path : *paths) {
    Tensors weights = LargeTensors("", -1), optimizer = LargeTensors("m.", -1);
    const auto state = Restore(path, weights.list(), optimizer.list());
    EXPECT_TRUE(state.ok()) << state.status();
    if (!state.ok()) continue;
    EXPECT_EQ(weights.f32(0).back(), static_cast<float>(state->global_step));
    EXPECT_EQ(optimizer.f32(0).front(), static_cast<float>(state->global_step));
    last = state->global_step;
  }
  return last;
}

// Microseconds that a Save takes here and now, which on a busy disk is ten times the usual.
int64_t MeasureSave() {
  const TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(SaveStep(folder.path(), 1).ok());
  const auto taken = std::chrono::steady_clock::now() - begin;
  return std::chrono::duration_cast<std::chrono::microseconds>(taken).count();
}

// Saves one step after another from `first`, pruning behind itself, until killed after `delay_us`.
void SaveUntilKilled(const std::string& dir, int64_t first, int64_t delay_us) {
  const pid_t child = Spawn([&] {
    for (int64_t step = first;; ++step) {
      const absl::Status saved = SaveStep(dir, step);
      const absl::Status pruned = Prune(dir, 2);
      if (saved.ok() && pruned.ok()) continue;
      std::cout << saved << "\n" << pruned << "\n";
      return 1;
    }
  });
  std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_TRUE(WIFSIGNALED(WaitFor(child))) << "the child failed by itself";
}

int64_t CountUnfinished(const std::string& dir) {
  const std::filesystem::directory_iterator begin(dir), end;
  return std::count_if(begin, end,
                       [](const auto& entry) { return entry.path().extension() == ".tmp"; });
}

// F-02: the moment of a kill has nothing to do with where the child is. The next child goes on from
// the last step there is, over what was left.
TEST(CrashTest, KillNeverLeavesATornCheckpoint) {
  constexpr int kKills = 60;
  const TempFolder folder;
  std::mt19937 random(7);
  int64_t inside = 0;
  int64_t last = 0;
  for (int i = 0; i < kKills && !HasFailure(); ++i) {
    const int64_t delay_us = static_cast<int64_t>(random() % 1000) * 3 * MeasureSave() / 1000;
    SaveUntilKilled(folder.path(), last + 1, delay_us);
    inside += CountUnfinished(folder.path());
    const int64_t now = CheckAll(folder.path());
    EXPECT_GE(now, last) << "a checkpoint that was there is gone";
    last = now;
  }
  std::cout << "kills inside Save: " << inside << " of " << kKills << ", last step " << last
            << "\n";
  EXPECT_GE(inside, 5) << "the kills did not land where they were meant to";
  EXPECT_GE(last, 5);
}

// A tmpfs of 4 MB over `dir`, for this process alone and as long as it lives.
bool MountSmallDisk(const std::string& dir) {
  const int user = getuid() == 0 ? 0 : CLONE_NEWUSER;
  return unshare(CLONE_NEWNS | user) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("none", dir.c_str(), "tmpfs", 0, "size=4m") == 0;
}

void FillSmallDisk(const TempFolder& folder) {
  SNUG_ASSERT_OK(SaveStep(folder.path(), 1));
  const absl::Status full = SaveStep(folder.path(), 2);
  EXPECT_EQ(full.code(), absl::StatusCode::kUnavailable) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("no room for the 1600112 bytes of " +
                        (folder / "step-000002.e1.tmp/weights.safetensors")));
  EXPECT_FALSE(std::filesystem::exists(folder / "step-000002.e1.tmp")) << "it still takes room";
  EXPECT_EQ(CheckAll(folder.path()), 1);
  std::filesystem::remove_all(folder / "step-000001.e1");
  SNUG_ASSERT_OK(SaveStep(folder.path(), 3));
  EXPECT_EQ(CheckAll(folder.path()), 3);
}

// The second checkpoint of 3.2 MB finds no room, and says so before anything that was there is
// harmed. With room again it goes on.
TEST(CrashTest, FullDiskKeepsThePreviousCheckpoint) {
  constexpr int kNoRight = 77;
  const TempFolder folder;
  const int status = WaitFor(Spawn([&] {
    if (!MountSmallDisk(folder.path())) return kNoRight;
    FillSmallDisk(folder);
    return HasFailure() ? 1 : 0;
  }));
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kNoRight) GTEST_SKIP() << "this user may not mount a tmpfs";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The limit on a file's size, which needs no rights: the same promise.
TEST(CrashTest, FileSizeLimitLeavesNothing) {
  const TempFolder folder;
  const pid_t child = Spawn([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 100'000, .rlim_max = 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const absl::Status status = SaveStep(folder.path(), 1);
    const bool named = status.message().find("weights.safetensors") != std::string::npos;
    return !status.ok() && named ? 0 : 1;
  });
  EXPECT_EQ(WaitFor(child), 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace snug::checkpoint

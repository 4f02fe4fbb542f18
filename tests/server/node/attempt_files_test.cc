#include "server/node/attempt_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "server/node/launcher.h"
#include "server/node/local_node.h"
#include "server/node/session.h"
#include "server/node/shim_watch.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

const AttemptIdentity kIdentity = {.instance = "1-1", .job = "job-a", .epoch = 2, .nonce = "a1"};

// As long as this lives, the process has no descriptor left.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {.rlim_cur = 64, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    for (int fd = 0; (fd = open("/dev/null", O_RDONLY)) >= 0;) taken_.push_back(fd);
  }
  ~NoDescriptors() {
    for (int fd : taken_) close(fd);
    setrlimit(RLIMIT_NOFILE, &before_);
  }

 private:
  rlimit before_{};
  std::vector<int> taken_;
};

class AttemptFilesTest : public testing::Test {
 protected:
  AttemptFilesTest() { fs::create_directories(state_ + "/jobs"); }

  // Once none of them begins or ends just now.
  static std::vector<pid_t> MembersOf(pid_t shim, const std::string& attempt_dir) {
    absl::StatusOr<std::vector<pid_t>> members = absl::UnavailableError("not asked");
    while (absl::IsUnavailable(members.status())) members = SessionMembers(shim, attempt_dir);
    return members.value();
  }
  std::vector<pid_t> Members(pid_t shim) const { return MembersOf(shim, dir_); }
  // A shim's child holds its lock until the exec.
  static void ExpectGone(ShimWatch& watch) {
    for (int i = 0; i < 1000 && watch.Look() != Liveness::kGone; ++i)
      absl::SleepFor(absl::Milliseconds(5));
    EXPECT_EQ(watch.Look(), Liveness::kGone);
  }
  // Once none begins or ends just now; how many there were.
  int KillMembers(pid_t shim) const {
    absl::StatusOr<int> signalled = absl::UnavailableError("not asked");
    while (absl::IsUnavailable(signalled.status())) signalled = SignalSession(shim, dir_, SIGKILL);
    return signalled.value();
  }

  // A shell script in the place of the worker.
  pid_t Launch(const std::string& script, const Device& device = {.name = "cpu:0"}) {
    const std::string worker = state_ + "/worker.sh";
    std::ofstream(worker) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(worker, fs::perms::owner_all);
    v1::Assignment assignment;
    assignment.set_attempt_dir(dir_);
    assignment.set_nonce(kIdentity.nonce);
    assignment.set_checkpoints_dir(CheckpointsDir(state_, "job-a"));
    const std::string shim = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-shim";
    const LauncherSettings settings = {.shim = shim,
                                       .worker = device.is_gpu() ? "/no/such" : worker,
                                       .worker_cuda = device.is_gpu() ? worker : "/no/such",
                                       .state_dir = state_,
                                       .instance = kIdentity.instance};
    return LaunchAttempt(settings, device, assignment).value();
  }
  ExitRecord WaitForEnd() {
    ShimWatch watch(dir_);
    while (watch.Look() != Liveness::kGone) absl::SleepFor(absl::Milliseconds(5));
    return ReadExitRecord(dir_, kIdentity).value().value_or(ExitRecord{.exit_code = -2});
  }

  const TestFolder folder_{"attempt"};
  const std::string state_ = folder_.path();
  const std::string dir_ = AttemptDir(state_, "job-a", 2);
};

TEST_F(AttemptFilesTest, LockIsHeldFromTheSpawnToTheExitRecord) {
  const pid_t shim = Launch("sleep 0.2; exit 4");
  EXPECT_EQ(ShimWatch(dir_).Look(), Liveness::kLives);
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
  assignment.set_nonce(kIdentity.nonce);
  assignment.set_checkpoints_dir(CheckpointsDir(state_, "job-a"));
  const std::string shim = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-shim";
  ASSERT_TRUE(
      LaunchAttempt(
          {.shim = shim, .worker = "/no/such", .state_dir = state_, .instance = kIdentity.instance},
          {.name = "cpu:0"}, assignment)
          .ok());
  EXPECT_EQ(WaitForEnd().exit_code, 127);
}

// A shell script in the place of the shim: the kernel's limit is that of the attempt, not of its
// device.
TEST_F(AttemptFilesTest, TheKernelGivesAWorkerItsLargestPlanAndOneGibibyte) {
  const std::string shim = state_ + "/shim.sh";
  std::ofstream(shim) << "#!/bin/sh\necho \"${SNUG_MEMORY_MAX-none}\" > " << state_ << "/limit\n";
  fs::permissions(shim, fs::perms::owner_all);
  v1::Assignment assignment;
  assignment.set_attempt_dir(dir_);
  assignment.set_checkpoints_dir(CheckpointsDir(state_, "job-a"));
  assignment.set_cap_bytes(3000);
  assignment.set_most_bytes(5000);
  assignment.mutable_plan()->set_host_bytes(70);
  LauncherSettings settings = {
      .shim = shim, .worker = "/no/such", .worker_cuda = "/no/such", .state_dir = state_};
  const auto limit = [&](const std::string& device) {
    const pid_t started =
        LaunchAttempt(settings, {.name = device, .capacity_bytes = 1 << 30}, assignment).value();
    waitpid(started, nullptr, 0);
    return ReadSmallFile(state_ + "/limit", 100).value();
  };
  EXPECT_EQ(limit("cpu:0"), "none\n");  // It has no group.
  settings.cgroup = "/groups";
  EXPECT_EQ(limit("cpu:0"), std::to_string((1 << 30) + 5070) + "\n");
  EXPECT_EQ(limit("gpu:0"), "none\n");  // Its driver's memory would be counted.
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
  while (Members(shim).empty()) absl::SleepFor(absl::Milliseconds(5));
  kill(shim, SIGKILL);
  waitpid(shim, nullptr, 0);
  ShimWatch watch(dir_);
  ExpectGone(watch);
  EXPECT_FALSE(ReadExitRecord(dir_, kIdentity).value().has_value());
  EXPECT_TRUE(MembersOf(shim, "/another/attempt").empty());
  EXPECT_EQ(Members(shim).size(), 1u);
  EXPECT_EQ(KillMembers(shim), 1);
  while (!Members(shim).empty()) absl::SleepFor(absl::Milliseconds(5));
}

// A child is in its session a moment before it has its environment, and with it its mark.
TEST_F(AttemptFilesTest, AProcessThatBeginsIsTakenForNoStranger) {
  setenv("SNUG_ATTEMPT", dir_.c_str(), 1);
  char name[] = "sleep", seconds[] = "1000";
  char* const words[] = {name, seconds, nullptr};
  posix_spawnattr_t leads;
  posix_spawnattr_init(&leads);
  posix_spawnattr_setflags(&leads, POSIX_SPAWN_SETSID);
  int strangers = 0;
  for (int round = 0; round < 300; ++round) {
    pid_t pid = 0;
    ASSERT_EQ(posix_spawnp(&pid, name, nullptr, &leads, words, environ), 0);
    const absl::StatusOr<bool> leads = LeadsSession(pid, dir_);
    strangers += leads.ok() && !*leads;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  EXPECT_EQ(strangers, 0);
  unsetenv("SNUG_ATTEMPT");
}

// Job and epoch come again when a store is rolled back; instance and nonce do not.
TEST_F(AttemptFilesTest, ExitRecordOfAnotherAttemptIsNotBelieved) {
  Launch("exit 4");
  EXPECT_EQ(WaitForEnd().exit_code, 4);
  for (const AttemptIdentity& other :
       {AttemptIdentity{"2-2", "job-a", 2, "a1"}, AttemptIdentity{"1-1", "job-b", 2, "a1"},
        AttemptIdentity{"1-1", "job-a", 3, "a1"}, AttemptIdentity{"1-1", "job-a", 2, "a2"}})
    EXPECT_TRUE(absl::IsDataLoss(ReadExitRecord(dir_, other).status()));
  std::ofstream(dir_ + "/exit.json") << R"({"schema":2,"job":)";
  EXPECT_TRUE(absl::IsDataLoss(ReadExitRecord(dir_, kIdentity).status()));
}

// A result lies there from before the store was rolled back.
TEST_F(AttemptFilesTest, WhatAnotherHistoryLeftIsMovedAside) {
  fs::create_directories(dir_);
  std::ofstream(dir_ + "/result.json") << R"({"outcome":"SUCCEEDED"})";
  Launch("exit 0");
  WaitForEnd();
  EXPECT_FALSE(ReadResult(dir_).value().has_value());
  int stale = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(dir_).parent_path()))
    stale += entry.path().filename().string().starts_with("2.stale-");
  EXPECT_EQ(stale, 1);
}

// It would hold up whoever opens it for reading, for ever.
TEST_F(AttemptFilesTest, AFifoInThePlaceOfAResultIsRefused) {
  fs::create_directories(dir_);
  ASSERT_EQ(mkfifo((dir_ + "/result.json").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(ReadResult(dir_).status()));
}

// The state folder is away (a disk that is not mounted): nobody knows, so nobody is dead.
TEST_F(AttemptFilesTest, AFolderThatIsAwayTellsNothing) {
  ShimWatch watch(dir_);
  EXPECT_EQ(watch.Look(), Liveness::kGone);  // Never started.
  fs::remove_all(state_ + "/jobs");
  EXPECT_EQ(watch.Look(), Liveness::kUnknown);
}

// F-75: no descriptor is left: a watch that was opened before still knows, another one knows that
// it does not, and the session is not taken for empty.
TEST_F(AttemptFilesTest, WithoutDescriptorsNobodyIsTakenForDead) {
  const pid_t shim = Launch("exec sleep 1000");
  ShimWatch watch(dir_), late(dir_);
  watch.Follow(shim, /*just_started=*/true);
  while (Members(shim).empty()) absl::SleepFor(absl::Milliseconds(5));
  {
    const NoDescriptors none;
    EXPECT_EQ(watch.Look(), Liveness::kLives);
    EXPECT_EQ(late.Look(), Liveness::kUnknown);
    EXPECT_EQ(SessionMembers(shim, dir_).status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(ReadExitRecord(dir_, kIdentity).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(watch.Signal(SIGKILL).ok());
  }
  waitpid(shim, nullptr, 0);
  ExpectGone(watch);
  EXPECT_EQ(KillMembers(shim), 1);
}

// F-08, F-75: the shim was killed and its worker lives. While no descriptor is left, neither the
// boot nor the shim's number nor the session is known: the attempt is not collected. Once there is
// one again the worker is found.
TEST_F(AttemptFilesTest, WithoutDescriptorsAnOrphanIsNotForgotten) {
  const std::string boot = ReadSmallFile("/proc/sys/kernel/random/boot_id", 100).value();
  const pid_t shim = Launch("exec sleep 1000");
  while (Members(shim).empty()) absl::SleepFor(absl::Milliseconds(5));
  kill(shim, SIGKILL);
  waitpid(shim, nullptr, 0);
  LocalNode node(LauncherSettings{.state_dir = state_});
  Node::EndedAttempt ended{.identity = kIdentity,
                           .boot_id = std::string(absl::StripAsciiWhitespace(boot))};
  for (int round = 0; round < 2; ++round) {  // In the second the boot is known already.
    {
      const NoDescriptors none;
      EXPECT_EQ(ReadShimPid(dir_).status().code(), absl::StatusCode::kResourceExhausted);
      for (const int64_t number : {0, shim}) {
        ended.shim = number;
        EXPECT_FALSE(node.Collect(ended).ok());
      }
    }
    EXPECT_EQ(Members(shim).size(), 1u);
    EXPECT_EQ(BootId().value(), ended.boot_id);
  }
  ended.shim = 0;
  ended.boot_id.clear();  // As an earlier version has stored it where it could not be read.
  EXPECT_TRUE(node.Collect(ended).ok());
  EXPECT_TRUE(Members(shim).empty());
}

// The daemon was killed before it stored the shim's number, and came back when it had no
// descriptor left: the worker is signalled as soon as there is one.
TEST_F(AttemptFilesTest, ANumberThatCouldNotBeReadIsReadAgain) {
  const pid_t shim = Launch("exec sleep 1000");
  while (Members(shim).empty()) absl::SleepFor(absl::Milliseconds(5));
  std::unique_ptr<ShimWatch> watch;
  {
    const NoDescriptors none;
    watch = ShimWatch::Adopt(dir_, /*shim=*/0);
    EXPECT_EQ(watch->SignalOthers(SIGKILL).code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(watch->Signal(SIGKILL).code(), absl::StatusCode::kResourceExhausted);
  }
  absl::Status sent = absl::UnavailableError("not sent");
  while (absl::IsUnavailable(sent)) sent = watch->SignalOthers(SIGKILL);
  EXPECT_TRUE(sent.ok()) << sent;
  EXPECT_EQ(WaitForEnd().signal, SIGKILL);
  waitpid(shim, nullptr, 0);
}

// A process that happens to have the number of a shim of an earlier life.
TEST_F(AttemptFilesTest, AStrangerWithTheShimsNumberIsNotSignalled) {
  ShimWatch watch(dir_);
  watch.Follow(getpid(), /*just_started=*/false);
  EXPECT_TRUE(absl::IsNotFound(watch.Signal(SIGKILL)));
}

// Its own rights do not matter: also root's worker may not.
TEST_F(AttemptFilesTest, AWorkerMayNotAskForPrivilegesNamespacesOrTheNetwork) {
  Launch(
      "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status\n"
      "ulimit -c\n"
      "unshare --net true\n"
      "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_UNIX); print(\"unix\")'\n"
      "/usr/bin/python3 -c 'import socket; socket.socket(socket.AF_INET)' 2>&1 | tail -n 1\n");
  WaitForEnd();
  EXPECT_EQ(ReadSmallFile(dir_ + "/worker.log", 1000).value(),
            "NoNewPrivs:\t1\nSeccomp:\t2\n0\n"
            "unshare: unshare failed: Operation not permitted\nunix\n"
            "PermissionError: [Errno 1] Operation not permitted\n");
}

TEST_F(AttemptFilesTest, AFloodOfOutputIsCutAndSaysSo) {
  Launch("head -c 200000000 /dev/zero; echo last words");
  WaitForEnd();
  EXPECT_LE(fs::file_size(dir_ + "/worker.log"), 33u << 20);
  EXPECT_LE(fs::file_size(dir_ + "/worker.log.1"), 33u << 20);
  std::ifstream log(dir_ + "/worker.log", std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_NE(text.find("bytes of output are left out]"), std::string::npos);
}

TEST_F(AttemptFilesTest, ResultIsReadAsJson) {
  fs::create_directories(dir_);
  EXPECT_FALSE(ReadResult(dir_).value().has_value());
  std::ofstream(dir_ + "/result.json") << R"({"outcome":"SUCCEEDED","added_later":1})";
  EXPECT_EQ(ReadResult(dir_).value()->outcome(), v1::WorkerResult::OUTCOME_SUCCEEDED);
  std::ofstream(dir_ + "/result.json") << "{";
  EXPECT_TRUE(absl::IsDataLoss(ReadResult(dir_).status()));
}

}  // namespace
}  // namespace snug::server

// Against a driver's library of the test's own (testing/fake_nvml.cc).
#include "server/node/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/node/gpu_use.h"
#include "server/node/session.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

constexpr const char* kTwo =
    "driver 580.65.06\n"
    "gpu GPU-aa 85899345920 85000000000 NVIDIA A100 80GB PCIe\n"
    "gpu GPU-bb 42949672960 42000000000 NVIDIA A100-PCIE-40GB\n";

// A process that the daemon of `state` would have started for an attempt; ends with the object.
class MarkedProcess {
 public:
  explicit MarkedProcess(const std::string& attempt_dir) {
    std::string program = "sleep", seconds = "1000", mark = "SNUG_ATTEMPT=" + attempt_dir;
    char* argv[] = {program.data(), seconds.data(), nullptr};
    char* environment[] = {mark.data(), nullptr};
    EXPECT_EQ(posix_spawnp(&pid_, "sleep", nullptr, nullptr, argv, environment), 0);
    // It is there before its environment is.
    const absl::Time end = absl::Now() + absl::Seconds(30);
    while (AttemptOf(pid_).empty() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(1));
  }
  ~MarkedProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    setenv("FAKE_NVML", path_.c_str(), 1);
    Tell(kTwo);
  }
  ~NvmlTest() override { std::filesystem::remove(path_); }
  void Tell(const std::string& text) { WriteText(path_, text); }
  static absl::StatusOr<std::unique_ptr<GpuDriver>> Open() {
    return GpuDriver::Open(std::getenv("SNUG_FAKE_NVML"));
  }

  const std::string path_ = testing::TempDir() + "/nvml-" + std::to_string(getpid());
};

TEST_F(NvmlTest, GpusAreDescribed) {
  const auto driver = Open().value();
  const Gpus gpus = driver->ReadGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  const Gpu& second = (*gpus)[1].value();
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.uuid, "GPU-bb");
  EXPECT_EQ(second.model, "NVIDIA A100-PCIE-40GB");
  EXPECT_EQ(second.driver, "580.65.06");
  EXPECT_EQ(second.total_bytes, 42949672960);
  EXPECT_EQ(second.free_bytes, 42000000000);
}

TEST_F(NvmlTest, WithoutADriverTheLibraryIsNamed) {
  const absl::Status status = GpuDriver::Open("libnvidia-none.so.1").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no NVIDIA driver is there"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("libnvidia-none.so.1"));
}

// A library that is there and is not NVML: the first function that is missing is named.
TEST_F(NvmlTest, AnotherLibraryIsNoDriver) {
  const absl::Status status = GpuDriver::Open("libm.so.6").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("libm.so.6 has no nvmlInit_v2"));
}

// After an upgrade of the driver without a restart of the machine.
TEST_F(NvmlTest, ADriverThatDoesNotAnswerSaysWhy) {
  Tell(absl::StrCat(kTwo, "fail nvmlInit_v2 18\n"));
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("nvmlInit_v2 gave 18 (Driver/library version mismatch)"));
  Tell(kTwo);
  const auto driver = Open().value();
  Tell(absl::StrCat(kTwo, "fail nvmlDeviceGetMemoryInfo 15\n"));
  EXPECT_THAT(std::string(driver->ReadMemory(0).status().message()),
              HasSubstr("nvmlDeviceGetMemoryInfo gave 15"));
  EXPECT_FALSE(driver->ReadMemory(2).ok());
}

// The other GPU can be used all the same.
TEST_F(NvmlTest, AGpuThatIsCutIntoInstancesIsRefused) {
  Tell(absl::StrCat(kTwo, "mig 0\n"));
  const auto driver = Open().value();
  const Gpus gpus = driver->ReadGpus();
  EXPECT_THAT(std::string((*gpus)[0].status().message()), HasSubstr("MIG"));
  EXPECT_TRUE((*gpus)[1].ok());
}

// More than the first call has room for.
TEST_F(NvmlTest, AllProcessesAreRead) {
  std::string text = kTwo;
  for (int pid = 1; pid <= 300; ++pid) absl::StrAppend(&text, "process 0 ", pid, " ", pid, "\n");
  Tell(absl::StrCat(text, "process 1 7 -1\n"));
  const auto driver = Open().value();
  const GpuMemory memory = driver->ReadMemory(0).value();
  ASSERT_EQ(memory.processes.value().size(), 300u);
  EXPECT_EQ(memory.processes->at(299).pid, 300);
  EXPECT_EQ(memory.processes->at(299).bytes, 300);
  EXPECT_EQ(driver->ReadMemory(1).value().processes.value().at(0).bytes, std::nullopt);
}

// On a vGPU nobody is told of processes: what is free is still known.
TEST_F(NvmlTest, ADriverThatNamesNoProcesses) {
  Tell(absl::StrCat(kTwo, "fail nvmlDeviceGetComputeRunningProcesses_v3 3\n"));
  const auto driver = Open().value();
  const GpuUse use = ReadUse(*driver, 1, "/s").value();
  EXPECT_FALSE(use.complete);
  EXPECT_EQ(use.ours(), 0);
  EXPECT_EQ(use.others_bytes, 42949672960 - 42000000000);
  EXPECT_TRUE(GpusForUs(*driver, "/s").value()[1].ok());
}

// Two processes of one attempt, a stranger, one of another daemon, one whose bytes nobody knows.
TEST_F(NvmlTest, MemoryIsWhoseProcessItIs) {
  const MarkedProcess one("/s/jobs/a/attempts/1"), two("/s/jobs/a/attempts/1"),
      other("/state2/jobs/a/attempts/1"), unknown("/s/jobs/b/attempts/1");
  const GpuMemory memory = {.total_bytes = 1000,
                            .free_bytes = 400,
                            .processes = {{{one.pid(), 100},
                                           {two.pid(), 50},
                                           {other.pid(), 30},
                                           {unknown.pid(), std::nullopt},
                                           {1, 20}}}};
  const GpuUse use = Attribute(memory, "/s");
  EXPECT_FALSE(use.complete);
  EXPECT_THAT(use.attempt_bytes, UnorderedElementsAre(Pair("/s/jobs/a/attempts/1", 150)));
  EXPECT_EQ(use.ours(), 150);
  EXPECT_EQ(use.others_bytes, 450);
}

// The driver's two answers are of two moments.
TEST_F(NvmlTest, OthersNeverHaveLessThanNothing) {
  const MarkedProcess one("/s/jobs/a/attempts/1");
  const GpuMemory memory = {
      .total_bytes = 1000, .free_bytes = 950, .processes = {{{one.pid(), 100}}}};
  EXPECT_EQ(Attribute(memory, "/s").others_bytes, 0);
  EXPECT_TRUE(Attribute(memory, "/s").complete);
}

// A daemon that comes back finds its own workers on the GPU: their bytes are promised already, so
// that the capacity is what it was.
TEST_F(NvmlTest, WhatOurOwnWorkersHoldCountsAsFree) {
  const MarkedProcess worker("/s/jobs/a/attempts/1");
  Tell(absl::StrCat("driver 580\ngpu GPU-aa 1000 600 A\nprocess 0 ", worker.pid(), " 300\n"));
  const auto driver = Open().value();
  EXPECT_EQ(GpusForUs(*driver, "/s").value()[0]->free_bytes, 900);
  EXPECT_EQ(GpusForUs(*driver, "/t").value()[0]->free_bytes, 600);
}

}  // namespace
}  // namespace snug::server

// Against a driver's library of the test's own (testing/fake_nvml.cc).
#include "server/node/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/node/gpu_use.h"
#include "server/node/session.h"
#include "tests/server/testing/test_folder.h"
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
    while (AttemptOf(pid_).value().empty() && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(1));
  }
  ~MarkedProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

std::string TroubleOf(const GpuReading& reading) {
  return std::string(reading.gpu.trouble.message());
}

class NvmlTest : public testing::Test {
 protected:
  NvmlTest() {
    setenv("FAKE_NVML", path_.c_str(), 1);
    Tell(kTwo);
  }
  void Tell(const std::string& text) { WriteText(path_, text); }
  static absl::StatusOr<std::unique_ptr<GpuDriver>> Open() {
    return GpuDriver::Open(std::getenv("SNUG_FAKE_NVML"));
  }

  const TestFolder folder_{"nvml"};
  const std::string path_ = folder_.path() + "/nvml";
};

TEST_F(NvmlTest, GpusAreDescribed) {
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  ASSERT_EQ(gpus->size(), 2u);
  const Gpu& second = (*gpus)[1].gpu;
  EXPECT_TRUE(second.trouble.ok()) << second.trouble;
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
  Tell(absl::StrCat(kTwo, "fail nvmlDeviceGetMemoryInfo_v2 15\n"));
  EXPECT_THAT(TroubleOf(driver->ReadGpus().value()[0]),
              HasSubstr("nvmlDeviceGetMemoryInfo_v2 gave 15 (GPU is lost)"));
}

// The other GPU can be used all the same.
TEST_F(NvmlTest, AGpuThatIsCutIntoInstancesIsRefused) {
  Tell(absl::StrCat(kTwo, "mig 0\n"));
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  EXPECT_THAT(TroubleOf((*gpus)[0]), HasSubstr("MIG"));
  EXPECT_EQ(TroubleOf((*gpus)[1]), "");
}

// A second process, the one that measures or a second worker, would get no context there.
TEST_F(NvmlTest, AGpuThatOnlyOneProcessMayUseIsRefused) {
  Tell(absl::StrCat(kTwo, "mode 0 3\nmode 1 2\n"));
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  EXPECT_EQ(TroubleOf((*gpus)[0]),
            "GPU 0 is in compute mode EXCLUSIVE_PROCESS, and several processes must share it: "
            "nvidia-smi -i 0 -c DEFAULT");
  EXPECT_THAT(TroubleOf((*gpus)[1]), HasSubstr("compute mode PROHIBITED"));
}

// After an Xid the driver answers as ever, and every kernel fails.
TEST_F(NvmlTest, AGpuThatItsDriverGivesUpIsRefused) {
  Tell(absl::StrCat(kTwo, "recovery 0 1\nfaulty 1\n"));
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  EXPECT_EQ(TroubleOf((*gpus)[0]), "its driver asks for recovery action GPU_RESET (nvidia-smi -q)");
  EXPECT_THAT(TroubleOf((*gpus)[1]), HasSubstr("a row could not be remapped"));
  Tell(absl::StrCat(kTwo, "fail nvmlDeviceGetRemappedRows 3\nfail nvmlDeviceGetFieldValues 3\n"));
  EXPECT_EQ(TroubleOf(driver->ReadGpus().value()[1]), "");  // An older model tells neither.
}

// Retired pages, and what the driver takes for itself, are nobody's to give.
TEST_F(NvmlTest, WhatTheDriverKeepsIsNotThere) {
  Tell(absl::StrCat(kTwo, "reserved 1 949672960\n"));
  const auto driver = Open().value();
  const std::vector<GpuReading> gpus = driver->ReadGpus().value();
  EXPECT_EQ(gpus[1].gpu.total_bytes, 42000000000);
  EXPECT_EQ(Attribute(gpus[1], "/s").others_bytes, 0);
}

// More than the first call has room for.
TEST_F(NvmlTest, AllProcessesAreRead) {
  std::string text = kTwo;
  for (int pid = 1; pid <= 300; ++pid) absl::StrAppend(&text, "process 0 ", pid, " ", pid, "\n");
  Tell(absl::StrCat(text, "process 1 7 -1\n"));
  const auto driver = Open().value();
  const std::vector<GpuReading> gpus = driver->ReadGpus().value();
  ASSERT_EQ(gpus[0].processes.value().size(), 300u);
  EXPECT_EQ(gpus[0].processes->at(299).pid, 300);
  EXPECT_EQ(gpus[0].processes->at(299).bytes, 300);
  EXPECT_EQ(gpus[1].processes.value().at(0).bytes, std::nullopt);
}

// On a vGPU nobody is told of processes: what is free is still known.
TEST_F(NvmlTest, ADriverThatNamesNoProcesses) {
  Tell(absl::StrCat(kTwo, "fail nvmlDeviceGetComputeRunningProcesses_v3 3\n"));
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  const GpuUse use = Attribute(gpus.value()[1], "/s");
  EXPECT_FALSE(use.complete);
  EXPECT_EQ(use.ours(), 0);
  EXPECT_EQ(use.others_bytes, 42949672960 - 42000000000);
  EXPECT_TRUE(GpusForUs(gpus, "/s").value()[1].trouble.ok());
}

// Two processes of one attempt, a stranger, one of another daemon, one whose bytes nobody knows.
TEST_F(NvmlTest, MemoryIsWhoseProcessItIs) {
  const MarkedProcess one("/s/jobs/a/attempts/1"), two("/s/jobs/a/attempts/1"),
      other("/state2/jobs/a/attempts/1"), unknown("/s/jobs/b/attempts/1");
  const GpuReading reading = {.gpu = {.total_bytes = 1000, .free_bytes = 400},
                              .processes = {{{one.pid(), 100},
                                             {two.pid(), 50},
                                             {other.pid(), 30},
                                             {unknown.pid(), std::nullopt},
                                             {1, 20}}}};
  const GpuUse use = Attribute(reading, "/s");
  EXPECT_FALSE(use.complete);
  EXPECT_THAT(use.attempt_bytes, UnorderedElementsAre(Pair("/s/jobs/a/attempts/1", 150)));
  EXPECT_EQ(use.ours(), 150);
  EXPECT_EQ(use.others_bytes, 450);
}

// The driver's two answers are of two moments.
TEST_F(NvmlTest, OthersNeverHaveLessThanNothing) {
  const MarkedProcess one("/s/jobs/a/attempts/1");
  const GpuReading reading = {.gpu = {.total_bytes = 1000, .free_bytes = 950},
                              .processes = {{{one.pid(), 100}}}};
  EXPECT_EQ(Attribute(reading, "/s").others_bytes, 0);
  EXPECT_TRUE(Attribute(reading, "/s").complete);
}

// A daemon that comes back finds its own workers on the GPU: their bytes are promised already, so
// that the capacity is what it was.
TEST_F(NvmlTest, WhatOurOwnWorkersHoldCountsAsFree) {
  const MarkedProcess worker("/s/jobs/a/attempts/1");
  Tell(absl::StrCat("driver 580\ngpu GPU-aa 1000 600 A\nprocess 0 ", worker.pid(), " 300\n"));
  const auto driver = Open().value();
  const GpuReadings gpus = driver->ReadGpus();
  EXPECT_EQ(GpusForUs(gpus, "/s").value()[0].free_bytes, 900);
  EXPECT_EQ(GpusForUs(gpus, "/t").value()[0].free_bytes, 600);
}

// GPU-bb as a daemon found it when it started: the second of kTwo.
Device SecondOfTwo() {
  return {.name = "gpu:1",
          .capacity_bytes = 40'000'000'000,
          .gpu = {.index = 1, .uuid = "GPU-bb", .driver = "580.65.06"},
          .context_bytes = 1};
}

// What is there of GPU-bb, or why nothing may go there.
std::string Seen(GpuWatch& watch) {
  const absl::StatusOr<GpuUse> use = UseOf(SecondOfTwo(), watch.Look(), "/s");
  return use.ok() ? absl::StrCat(use->total_bytes - use->others_bytes)
                  : std::string(use.status().message());
}

// The first GPU has fallen off the bus, and the second is counted as the first now.
TEST_F(NvmlTest, AGpuIsFoundByItsIdWhereverItIsCounted) {
  GpuWatch watch(std::getenv("SNUG_FAKE_NVML"));
  EXPECT_EQ(Seen(watch), "42000000000");
  Tell("driver 580.65.06\ngpu GPU-bb 42949672960 41000000000 NVIDIA A100-PCIE-40GB\n");
  EXPECT_EQ(Seen(watch), "41000000000");
  Tell("driver 580.65.06\ngpu GPU-aa 85899345920 85000000000 NVIDIA A100 80GB PCIe\n");
  EXPECT_EQ(Seen(watch), "GPU-bb is not on this machine now");
}

// One that is lost does not say which it is; the other one does.
TEST_F(NvmlTest, AGpuThatIsLostIsTheOneThatIsMissing) {
  GpuWatch watch(std::getenv("SNUG_FAKE_NVML"));
  Tell(absl::StrCat(kTwo, "lost 0\n"));
  EXPECT_EQ(Seen(watch), "42000000000");
  Tell(absl::StrCat(kTwo, "lost 1\n"));
  EXPECT_THAT(Seen(watch), HasSubstr("nvmlDeviceGetHandleByIndex_v2 gave 15 (GPU is lost)"));
}

// A reset or a reload of the driver: what was opened before never answers again.
TEST_F(NvmlTest, ADriverThatWasLoadedAnewIsOpenedAnew) {
  GpuWatch watch(std::getenv("SNUG_FAKE_NVML"));
  EXPECT_EQ(Seen(watch), "42000000000");
  Tell(absl::StrCat(kTwo, "life 1\n"));
  EXPECT_THAT(Seen(watch), HasSubstr("nvmlSystemGetDriverVersion gave 999"));
  EXPECT_EQ(Seen(watch), "42000000000");
}

// Jobs are planned with what a worker takes under the driver that was measured, and with all of
// the capacity: switching ECC on takes a sixteenth of some GPUs.
TEST_F(NvmlTest, AGpuThatIsNoLongerWhatItWasIsRefused) {
  GpuWatch watch(std::getenv("SNUG_FAKE_NVML"));
  Tell("driver 590\ngpu GPU-aa 1 1 A\ngpu GPU-bb 42949672960 42000000000 NVIDIA A100\n");
  EXPECT_EQ(Seen(watch),
            "its driver is 590 now, and what a worker takes was measured with 580.65.06: restart "
            "snugd");
  Tell(absl::StrCat(kTwo, "reserved 1 2949672961\n"));
  EXPECT_EQ(Seen(watch),
            "it has 37.3 GiB (39999999999 bytes) now, less than its capacity of 37.3 GiB "
            "(40000000000 bytes): restart snugd with less");
}

// It was in trouble when the daemon started: then it may be used as it was before, if what a worker
// takes of it is known.
TEST_F(NvmlTest, AGpuThatWasInTroubleAtTheStart) {
  GpuWatch watch(std::getenv("SNUG_FAKE_NVML"));
  Device device = SecondOfTwo();
  device.gpu.trouble = absl::UnavailableError("the driver is not loaded");
  EXPECT_TRUE(UseOf(device, watch.Look(), "/s").ok());
  device.context_bytes = 0;
  EXPECT_THAT(std::string(UseOf(device, watch.Look(), "/s").status().message()),
              HasSubstr("what a worker takes of it is not known: restart snugd"));
  device.gpu.uuid.clear();
  EXPECT_EQ(UseOf(device, watch.Look(), "/s").status(), device.gpu.trouble);
}

}  // namespace
}  // namespace snug::server

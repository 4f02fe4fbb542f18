#include "server/place/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

Gpu GpuOf(int index, int64_t total, int64_t free) {
  return {.index = index,
          .uuid = "GPU-" + std::to_string(index),
          .model = "NVIDIA A100",
          .driver = "580",
          .total_bytes = total,
          .free_bytes = free};
}

Host TwoGpus() {
  return {.memory_bytes = 64 * kGiB,
          .cores = 8,
          .processor = "AMD EPYC",
          .gpus = std::vector<Gpu>{GpuOf(0, 80 * kGiB, 79 * kGiB), GpuOf(1, 40 * kGiB, 30 * kGiB)}};
}

// Names, with capacities where there are any: {"gpu:0", "40GiB", "cpu:0", ""}.
v1::DaemonConfig Config(const std::vector<std::pair<std::string, std::string>>& devices) {
  v1::DaemonConfig config;
  for (const auto& [name, capacity] : devices) {
    v1::DeviceConfig& device = *config.add_devices();
    device.set_name(name);
    device.set_capacity(capacity);
  }
  return config;
}

std::string Refusal(const v1::DaemonConfig& config, const Host& host) {
  const absl::Status status = DevicesOf(config, host).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

TEST(DevicesTest, DefaultIsHalfOfTheHost) {
  const auto devices = DevicesOf({}, TwoGpus()).value();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "cpu:0");
  EXPECT_EQ(devices[0].capacity_bytes, 32 * kGiB);
  EXPECT_EQ(devices[0].threads, 8);
  EXPECT_EQ(devices[0].model, "AMD EPYC");
  EXPECT_EQ(devices[0].total_bytes, 64 * kGiB);
}

TEST(DevicesTest, ThreeAtOnceInTheOrderOfTheConfiguration) {
  v1::DaemonConfig config = Config({{"cpu:0", "4GiB"}, {"gpu:1", ""}, {"gpu:0", "40GiB"}});
  config.mutable_devices(1)->set_threads(2);
  EXPECT_TRUE(NamesGpu(config));
  const auto devices = DevicesOf(config, TwoGpus()).value();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].capacity_bytes, 4 * kGiB);
  EXPECT_FALSE(devices[0].is_gpu());
  EXPECT_EQ(devices[1].name, "gpu:1");
  EXPECT_EQ(devices[1].gpu.uuid, "GPU-1");
  EXPECT_EQ(devices[1].capacity_bytes, 29 * kGiB);  // What is free, less the reserve.
  EXPECT_EQ(devices[1].threads, 2);
  EXPECT_EQ(devices[2].gpu.uuid, "GPU-0");
  EXPECT_EQ(devices[2].capacity_bytes, 40 * kGiB);
  EXPECT_EQ(devices[2].total_bytes, 80 * kGiB);
  EXPECT_EQ(devices[2].model, "NVIDIA A100");
}

TEST(DevicesTest, WithoutAGpuNobodyAsksForADriver) {
  EXPECT_FALSE(NamesGpu({}));
  EXPECT_FALSE(NamesGpu(Config({{"cpu:0", ""}, {"cpu:1", ""}})));
  Host host = TwoGpus();
  host.gpus = absl::FailedPreconditionError("no NVIDIA driver is there");
  EXPECT_TRUE(DevicesOf(Config({{"cpu:0", ""}}), host).ok());
}

// All of a GPU may be given; not a byte more.
TEST(DevicesTest, CapacityIsAtMostWhatTheGpuHas) {
  EXPECT_EQ(DevicesOf(Config({{"gpu:1", "40GiB"}}), TwoGpus()).value()[0].capacity_bytes,
            40 * kGiB);
  EXPECT_EQ(
      Refusal(Config({{"cpu:0", "1GiB"}, {"gpu:1", "42949672961"}}), TwoGpus()),
      "devices[1].capacity: 40.0 GiB (42949672961 bytes) is more than gpu:1 has: NVIDIA A100, "
      "40 GiB (42949672960 bytes)");
}

TEST(DevicesTest, AGpuThatTheMachineHasNot) {
  Host host = TwoGpus();
  EXPECT_EQ(Refusal(Config({{"gpu:2", ""}}), host),
            "devices[0].name: gpu:2: this machine has 2 GPUs, the last is gpu:1");
  host.gpus = std::vector<Gpu>();
  EXPECT_EQ(Refusal(Config({{"gpu:0", ""}}), host),
            "devices[0].name: gpu:0: this machine has no GPU");
  host.gpus = absl::FailedPreconditionError("no NVIDIA driver is there: libnvidia-ml.so.1: ...");
  EXPECT_EQ(Refusal(Config({{"cpu:0", ""}, {"gpu:0", "1GiB"}}), host),
            "devices[1].name: gpu:0: no NVIDIA driver is there: libnvidia-ml.so.1: ...");
}

// Only who names it is refused.
TEST(DevicesTest, AGpuThatIsInTrouble) {
  Host host = TwoGpus();
  (*host.gpus)[0].trouble = absl::FailedPreconditionError("it is lost");
  EXPECT_EQ(Refusal(Config({{"gpu:0", ""}}), host), "devices[0].name: gpu:0: it is lost");
  EXPECT_TRUE(DevicesOf(Config({{"gpu:1", ""}}), host).ok());
}

KnownGpu Known(const std::string& uuid, int64_t capacity) {
  return {.gpu = {.uuid = uuid, .model = "NVIDIA A100", .driver = "580", .total_bytes = 80 * kGiB},
          .capacity_bytes = capacity};
}

// The driver is not there after an upgrade: GPUs that the daemon has had are as they were, and
// nothing can be placed there; one that it never had is a mistake.
TEST(DevicesTest, AKnownGpuInTroubleIsADevice) {
  Host host = TwoGpus();
  host.gpus = absl::FailedPreconditionError("no NVIDIA driver is there");
  host.known = {{"gpu:0", Known("GPU-0", 79 * kGiB)}, {"gpu:1", Known("GPU-1", 5 * kGiB)}};
  const auto devices = DevicesOf(Config({{"gpu:0", ""}, {"gpu:1", "7GiB"}}), host).value();
  EXPECT_EQ(devices[0].gpu.trouble.message(), "no NVIDIA driver is there");
  EXPECT_EQ(devices[0].id(), "GPU-0");
  EXPECT_EQ(devices[0].model, "NVIDIA A100");
  EXPECT_EQ(devices[0].total_bytes, 80 * kGiB);
  EXPECT_EQ(devices[0].capacity_bytes, 79 * kGiB);
  EXPECT_EQ(devices[1].capacity_bytes, 7 * kGiB);
  EXPECT_EQ(Refusal(Config({{"gpu:2", ""}}), host),
            "devices[0].name: gpu:2: no NVIDIA driver is there");
}

// One has fallen off the bus, and the other one is the first now.
TEST(DevicesTest, OneGpuIsNotTwoDevices) {
  Host host = TwoGpus();
  host.known = {{"gpu:0", Known("GPU-0", kGiB)}, {"gpu:1", Known("GPU-1", kGiB)}};
  host.gpus->erase(host.gpus->begin());
  const auto devices = DevicesOf(Config({{"gpu:0", ""}, {"gpu:1", ""}}), host).value();
  EXPECT_EQ(devices[0].id(), "GPU-1");
  EXPECT_TRUE(devices[0].gpu.trouble.ok());
  EXPECT_EQ(devices[1].id(), "gpu:1");
  EXPECT_EQ(devices[1].gpu.trouble.message(), "this machine has 1 GPU, the last is gpu:0");
}

// Without a capacity there must be something beyond the reserve.
TEST(DevicesTest, AGpuThatIsFull) {
  Host host = TwoGpus();
  (*host.gpus)[1] = GpuOf(1, 40 * kGiB, kGpuReserveBytes);
  EXPECT_THAT(Refusal(Config({{"gpu:1", ""}}), host),
              HasSubstr("devices[0].capacity: none is given, and of gpu:1 (NVIDIA A100) only "
                        "1 GiB (1073741824 bytes) are free"));
  (*host.gpus)[1] = GpuOf(1, 40 * kGiB, kGpuReserveBytes + 1);
  EXPECT_EQ(DevicesOf(Config({{"gpu:1", ""}}), host).value()[0].capacity_bytes, 1);
}

TEST(DevicesTest, MistakesAreNamed) {
  for (const char* name : {"tpu:0", "gpu", "gpu:", "gpu:-1", "gpu:00", "cpu:x", "GPU:0", ""})
    EXPECT_THAT(Refusal(Config({{name, "1GiB"}}), TwoGpus()),
                HasSubstr(std::string("devices[0].name: \"") + name + "\" is no device"));
  EXPECT_THAT(Refusal(Config({{"cpu:0", "lots"}}), TwoGpus()), HasSubstr("devices[0].capacity: "));
  EXPECT_EQ(Refusal(Config({{"gpu:0", "0"}}), TwoGpus()),
            "devices[0].capacity: gpu:0 has no bytes");
  EXPECT_EQ(Refusal(Config({{"gpu:0", ""}, {"cpu:0", ""}, {"gpu:0", "1GiB"}}), TwoGpus()),
            "devices[2].name: gpu:0 is devices[0] already");
  v1::DaemonConfig config = Config({{"gpu:0", ""}});
  config.mutable_devices(0)->set_threads(-1);
  EXPECT_EQ(Refusal(config, TwoGpus()), "devices[0].threads: -1 is below 0");
  for (int i = 1; i <= kMaxDevices; ++i) config.add_devices()->set_name("cpu:" + std::to_string(i));
  EXPECT_EQ(Refusal(config, TwoGpus()), "devices: 65 are named; at most 64 can be");
}

// Promises that no machine could keep.
TEST(DevicesTest, TheCpuHasNoMoreThanTheMachine) {
  EXPECT_EQ(DevicesOf(Config({{"cpu:0", "64GiB"}}), TwoGpus()).value()[0].capacity_bytes,
            64 * kGiB);
  EXPECT_THAT(
      Refusal(Config({{"cpu:0", "900GiB"}}), TwoGpus()),
      HasSubstr("devices[0].capacity: 900 GiB (966367641600 bytes) is more than cpu:0 has"));
  EXPECT_THAT(Refusal(Config({{"cpu:0", "40GiB"}, {"gpu:0", ""}, {"cpu:1", "40GiB"}}), TwoGpus()),
              HasSubstr("more bytes together than this machine"));
}

TEST(DevicesTest, PlansDependOnTheKindOfDevice) {
  auto devices =
      DevicesOf(Config({{"cpu:0", ""}, {"gpu:0", ""}, {"gpu:1", ""}}), TwoGpus()).value();
  EXPECT_NE(MachineOf(devices[0]), MachineOf(devices[1]));
  EXPECT_EQ(MachineOf(devices[1]), MachineOf(devices[2]));  // Planned for once.
  devices[2].context_bytes = 5;
  EXPECT_NE(MachineOf(devices[1]), MachineOf(devices[2]));
}

// What is divided is the CPU's: a GPU's workers need their host threads whole.
TEST(DevicesTest, ThreadsAreDividedAmongTheWorkersOfACpu) {
  Device device{.name = "cpu:0", .threads = 12};
  EXPECT_THAT(ThreadShares(device), ElementsAre(12, 6, 3, 1));
  device.threads = 96;
  EXPECT_THAT(ThreadShares(device), ElementsAre(96, 48, 24, 12, 6));
  device.threads = 1;
  EXPECT_THAT(ThreadShares(device), ElementsAre(1));
  device = {.name = "gpu:0", .threads = 12};
  EXPECT_THAT(ThreadShares(device), ElementsAre(12));
}

TEST(DevicesTest, ThreadsPerJobAreWhatTheyAreSaidToBe) {
  v1::DaemonConfig config = Config({{"cpu:0", "1GiB"}});
  config.mutable_devices(0)->set_threads_per_job(3);
  const std::vector<Device> devices = DevicesOf(config, TwoGpus()).value();
  EXPECT_THAT(ThreadShares(devices[0]), ElementsAre(3));
  EXPECT_EQ(MachineOf(devices[0]).threads, 3);
  config.mutable_devices(0)->set_threads(2);
  EXPECT_EQ(Refusal(config, TwoGpus()),
            "devices[0].threads_per_job: 3 is more than the 2 threads of the device");
  config.mutable_devices(0)->set_threads_per_job(-1);
  EXPECT_EQ(Refusal(config, TwoGpus()), "devices[0].threads_per_job: -1 is below 0");
  config = Config({{"gpu:0", ""}});
  config.mutable_devices(0)->set_threads_per_job(3);
  EXPECT_THAT(Refusal(config, TwoGpus()), HasSubstr("threads_per_job: of cpu:N alone"));
}

TEST(DevicesTest, HowManyJobsADeviceRunsAtMost) {
  v1::DaemonConfig config = Config({{"cpu:0", "1GiB"}});
  EXPECT_EQ(StatesOf(DevicesOf(config, TwoGpus()).value())[0].max_jobs, 64);
  config.set_max_jobs_per_device(1);
  EXPECT_EQ(StatesOf(DevicesOf(config, TwoGpus()).value())[0].max_jobs, 1);
  config.set_max_jobs_per_device(65);
  EXPECT_EQ(Refusal(config, TwoGpus()), "max_jobs_per_device: 65 is outside 1 to 64");
}

}  // namespace
}  // namespace snug::server

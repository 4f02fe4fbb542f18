#include "server/place/device_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace snug::server {
namespace {

using program::Limit;
using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

// A daemon with a CPU and an H100.
std::vector<Device> Devices() {
  Device cpu{.name = "cpu:0", .capacity_bytes = 4 * kGiB, .threads = 6};
  cpu.context_bytes = 170;
  Device gpu{
      .name = "gpu:0", .capacity_bytes = 70 * kGiB, .threads = 6, .model = "NVIDIA H100 80GB HBM3"};
  gpu.context_bytes = 600;
  return {cpu, gpu};
}

v1::GivenMachine Given(const std::string& kind, int64_t bytes) {
  v1::GivenMachine given;
  given.set_device_kind(kind);
  given.set_device_memory_bytes(bytes);
  return given;
}

absl::StatusOr<Device> Planned(const std::string& kind, int64_t bytes) {
  const std::vector<Device> devices = Devices();
  return GivenDevice(Given(kind, bytes), devices, devices[0]);
}

TEST(DeviceKindsTest, WithoutAKindItIsTheDaemonsDeviceWithOtherMemory) {
  const Device device = Planned("", 24 * kGiB).value();
  EXPECT_EQ(device.name, "cpu:0");
  EXPECT_EQ(device.capacity_bytes, 24 * kGiB);
  EXPECT_EQ(device.threads, 6);
  EXPECT_EQ(device.context_bytes, 170);
}

// What the node has measured of such a device is used, and its own capacity is not.
TEST(DeviceKindsTest, AKindHasItsMemoryAndItsSpeed) {
  const Device h100 = Planned("h100", 0).value();
  EXPECT_EQ(h100.name, "gpu:h100");
  EXPECT_TRUE(h100.is_gpu());
  EXPECT_EQ(h100.context_bytes, 600);
  EXPECT_GT(h100.capacity_bytes, 78 * kGiB);
  const Device h200 = Planned("h200", 100 * kGiB).value();
  EXPECT_EQ(h200.capacity_bytes, 100 * kGiB);
  EXPECT_GT(h200.context_bytes, 600);  // There is none here to have been measured.
  const auto bf16 = [](const Device& device, Limit limit) { return RatesOf(device).bf16[limit]; };
  EXPECT_GT(bf16(h200, Limit::kPasses), bf16(h100, Limit::kPasses));
  EXPECT_EQ(bf16(h200, Limit::kProducts), bf16(h100, Limit::kProducts));
  EXPECT_STREQ(RatesSource(h200), "kind");
}

TEST(DeviceKindsTest, ACpuIsAsTheDaemonsUnlessItsMemoryIsGiven) {
  EXPECT_EQ(Planned("cpu", 0)->capacity_bytes, 4 * kGiB);
  EXPECT_EQ(Planned("cpu", 9 * kGiB)->capacity_bytes, 9 * kGiB);
  EXPECT_FALSE(Planned("cpu", 0)->is_gpu());
  const Device gpu = Devices()[1];
  EXPECT_THAT(GivenDevice(Given("cpu", 0), {gpu}, gpu).status().message(),
              HasSubstr("machine.device_memory_bytes: nothing is known"));
}

TEST(DeviceKindsTest, AnUnknownKindIsAnsweredWithThoseThatThereAre) {
  EXPECT_THAT(
      Planned("tpu", kGiB).status().message(),
      HasSubstr("machine.device_kind: \"tpu\" is none of cpu, h200, h100, a100-40gb, a100"));
  EXPECT_THAT(Planned("h100", -1).status().message(), HasSubstr("below 0"));
}

TEST(DeviceKindsTest, ADeviceIsMeasuredOnceAllOfItsRatesAre) {
  Device gpu = Devices()[1];
  EXPECT_FALSE(IsMeasured(gpu));
  gpu.rates.emplace();
  for (program::Rates* const rates : {&gpu.rates->f32, &gpu.rates->bf16})
    rates->per_second.fill(1e12);
  EXPECT_TRUE(IsMeasured(gpu));
  gpu.rates->bf16[Limit::kPasses] = 0.0;
  EXPECT_FALSE(IsMeasured(gpu));
}

// By the name that its driver gives; A100s of two sizes differ in speed, too.
TEST(DeviceKindsTest, RatesAreThoseMeasuredElseTheKindsElseNobodys) {
  Device gpu = Devices()[1];
  EXPECT_STREQ(RatesSource(gpu), "kind");
  gpu.model = "NVIDIA A100-SXM4-40GB";
  const double small = RatesOf(gpu).bf16[Limit::kPasses];
  gpu.model = "NVIDIA A100-SXM4-80GB";
  EXPECT_GT(RatesOf(gpu).bf16[Limit::kPasses], small);
  gpu.model = "NVIDIA of another year";
  EXPECT_STREQ(RatesSource(gpu), "nominal");
  EXPECT_EQ(RatesOf(gpu), program::MachineRates());
  gpu.rates = {.f32 = program::Rates::Of(1.0, 3.0), .bf16 = program::Rates::Of(2.0, 3.0)};
  EXPECT_STREQ(RatesSource(gpu), "measured");
  EXPECT_EQ(MachineOf(gpu).rates, *gpu.rates);
}

// A worker of a GPU measures copies and starts alone. Among rates of no machine in particular, as
// of a CPU that was not measured in full, they would say something that is not true.
TEST(DeviceKindsTest, WhatIsMeasuredOfAGpuStandsBesideItsKindsRates) {
  Device gpu = Devices()[1];
  const program::MachineRates kinds = RatesOf(gpu);
  EXPECT_EQ(kinds.f32[Limit::kToHost], kinds.bf16[Limit::kFromHost]);
  gpu.rates = {.f32 = {.per_second = {}}, .bf16 = {.per_second = {}}};
  gpu.rates->f32[Limit::kRuns] = 1e5;
  gpu.rates->bf16[Limit::kToHost] = 3e9;
  gpu.rates->bf16[Limit::kFromHost] = 4e9;
  gpu.rates->head_rows = 2048;
  program::MachineRates expected = kinds;
  expected.head_rows = 2048;
  expected.f32[Limit::kRuns] = 1e5;
  expected.bf16[Limit::kToHost] = 3e9;
  expected.bf16[Limit::kFromHost] = 4e9;
  EXPECT_EQ(RatesOf(gpu), expected);
  EXPECT_STREQ(RatesSource(gpu), "kind");
  gpu.model = "NVIDIA of another year";
  EXPECT_EQ(RatesOf(gpu), program::MachineRates{.head_rows = 2048});  // Which is no rate.
  EXPECT_STREQ(RatesSource(gpu), "nominal");
  Device cpu = Devices()[0];
  cpu.rates = kinds;
  EXPECT_STREQ(RatesSource(cpu), "measured");
  cpu.rates->f32[Limit::kRuns] = 0.0;
  EXPECT_EQ(RatesOf(cpu), program::MachineRates());
  EXPECT_STREQ(RatesSource(cpu), "nominal");
}

// 63 GB/s of PCIe 5 and 31.5 of PCIe 4, of which copies of pinned memory have 80 %.
TEST(DeviceKindsTest, EveryKindHasItsBusAndStartsRuns) {
  for (const DeviceKind& kind : GpuKinds()) {
    const bool hopper = kind.name[0] == 'h';
    for (const program::Rates& rates : {kind.rates.f32, kind.rates.bf16}) {
      EXPECT_DOUBLE_EQ(rates[Limit::kToHost], 0.8 * (hopper ? 63e9 : 31.5e9)) << kind.name;
      EXPECT_EQ(rates[Limit::kFromHost], rates[Limit::kToHost]) << kind.name;
      EXPECT_EQ(rates[Limit::kRuns], 200e3) << kind.name;
    }
  }
}

}  // namespace
}  // namespace snug::server

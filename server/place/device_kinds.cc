#include "server/place/device_kinds.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"

namespace snug::server {
namespace {

using program::Limit;

constexpr int64_t kMiB = 1 << 20;
constexpr const char* kCpu = "cpu";

// Of what a data sheet promises for dense products, for memory and for the bus, this much is had by
// products of a model's sizes, by passes over its values and by copies of pinned memory.
constexpr double kOfProducts = 0.6;
constexpr double kOfMemory = 0.8;
constexpr double kOfBus = 0.8;

// Each way, of 16 lanes of PCIe: 16 and 32 GT/s in 128 of 130 bits.
constexpr double kPcie4 = 31.5, kPcie5 = 63.0;  // GB/s

// No data sheet has it: an estimate, of two launches of 2.2 us for a run (tests/gpu/expected.md)
// and a little of the worker's own. It is the host's, so that all kinds have the same.
constexpr double kRunsPerS = 200e3;

// A worker's context on a GPU that this node has none of: 0.4-0.7 GiB were seen on an H100 with one
// stream for products; a second one takes 40 MiB.
constexpr int64_t kGpuContextBytes = 744 * kMiB;

struct DataSheet {
  double bf16_tflops = 0.0;
  double f32_tflops = 0.0;
  double gb_per_s = 0.0;
  double bus_gb_per_s = 0.0;
};

program::MachineRates RatesBy(const DataSheet& sheet) {
  const auto at = [&](double tflops) {
    program::Rates rates =
        program::Rates::Of(tflops * 1e12 * kOfProducts, sheet.gb_per_s * 1e9 * kOfMemory);
    rates[Limit::kToHost] = rates[Limit::kFromHost] = sheet.bus_gb_per_s * 1e9 * kOfBus;
    rates[Limit::kRuns] = kRunsPerS;
    return rates;
  };
  return {.f32 = at(sheet.f32_tflops), .bf16 = at(sheet.bf16_tflops)};
}

const DeviceKind* KindNamed(const std::string& name) {
  for (const DeviceKind& kind : GpuKinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

// "NVIDIA H100 80GB HBM3"; null for a GPU that the table does not have.
const DeviceKind* KindOf(const Device& device) {
  if (!device.is_gpu()) return nullptr;
  for (const DeviceKind& kind : GpuKinds())
    if (absl::StrContains(device.model, kind.model)) return &kind;
  return nullptr;
}

bool IsWhole(const program::Rates& rates) {
  return std::all_of(rates.per_second.begin(), rates.per_second.end(),
                     [](double rate) { return rate > 0.0; });
}

void PutMeasured(const program::Rates& measured, program::Rates& rates) {
  for (size_t i = 0; i < program::kLimits; ++i)
    if (measured.per_second[i] > 0.0) rates.per_second[i] = measured.per_second[i];
}

absl::Status UnknownKind(const std::string& name) {
  std::string known = kCpu;
  for (const DeviceKind& kind : GpuKinds()) absl::StrAppend(&known, ", ", kind.name);
  return absl::InvalidArgumentError(
      absl::StrCat("machine.device_kind: \"", name, "\" is none of ", known));
}

// As the first of the daemon's devices that `is`; else what is not in a kind's name.
template <typename Is>
Device Like(const std::vector<Device>& devices, const Is& is, const Device& otherwise) {
  const auto found = std::find_if(devices.begin(), devices.end(), is);
  return found == devices.end() ? otherwise : *found;
}

absl::StatusOr<Device> OfKind(const std::string& name, const std::vector<Device>& devices) {
  const int threads = devices.empty() ? 1 : devices.front().threads;
  if (name == kCpu) {
    Device cpu =
        Like(devices, [](const Device& device) { return !device.is_gpu(); }, {.threads = threads});
    cpu.name = kCpu;
    return cpu;
  }
  const DeviceKind* kind = KindNamed(name);
  if (kind == nullptr) return UnknownKind(name);
  Device gpu = Like(devices, [kind](const Device& device) { return KindOf(device) == kind; },
                    {.threads = threads, .context_bytes = kGpuContextBytes});
  gpu.name = absl::StrCat("gpu:", name);
  gpu.model = kind->model;
  gpu.total_bytes = kind->total_bytes;
  gpu.capacity_bytes = kind->total_bytes - kGpuReserveBytes;
  return gpu;
}

}  // namespace

// Bytes: as nvidia-smi gives them. Rates: NVIDIA's data sheets, dense, of the SXM form where there
// are two; fp32 without TF32; the bus as it is to the host.
const std::vector<DeviceKind>& GpuKinds() {
  static const auto* const kinds = new std::vector<DeviceKind>{
      {"h200", "H200", 143771 * kMiB, RatesBy({989.0, 67.0, 4800.0, kPcie5})},
      {"h100", "H100", 81559 * kMiB, RatesBy({989.0, 67.0, 3350.0, kPcie5})},
      {"a100-40gb", "A100-SXM4-40GB", 40960 * kMiB, RatesBy({312.0, 19.5, 1555.0, kPcie4})},
      {"a100", "A100", 81920 * kMiB, RatesBy({312.0, 19.5, 2039.0, kPcie4})},
      {"l40s", "L40S", 46068 * kMiB, RatesBy({362.0, 91.6, 864.0, kPcie4})},
      {"l40", "L40", 46068 * kMiB, RatesBy({181.0, 90.5, 864.0, kPcie4})},
      {"l4", "L4", 23034 * kMiB, RatesBy({121.0, 30.3, 300.0, kPcie4})},
      {"rtx4090", "RTX 4090", 24564 * kMiB, RatesBy({165.2, 82.6, 1008.0, kPcie4})},
      {"rtx3090", "RTX 3090", 24576 * kMiB, RatesBy({71.0, 35.6, 936.0, kPcie4})}};
  return *kinds;
}

bool IsMeasured(const Device& device) {
  return device.rates.has_value() && IsWhole(device.rates->f32) && IsWhole(device.rates->bf16);
}

program::MachineRates RatesOf(const Device& device) {
  if (IsMeasured(device)) return *device.rates;
  const DeviceKind* kind = KindOf(device);
  program::MachineRates rates;
  if (kind != nullptr) rates = kind->rates;
  if (!device.rates.has_value()) return rates;
  rates.head_rows = device.rates->head_rows;
  if (kind == nullptr) return rates;  // Ratios alone: no true rate goes among them.
  PutMeasured(device.rates->f32, rates.f32);
  PutMeasured(device.rates->bf16, rates.bf16);
  return rates;
}

const char* RatesSource(const Device& device) {
  if (IsMeasured(device)) return "measured";
  return KindOf(device) == nullptr ? "nominal" : "kind";
}

absl::StatusOr<Device> GivenDevice(const v1::GivenMachine& given,
                                   const std::vector<Device>& devices, const Device& like) {
  absl::StatusOr<Device> device = like;
  if (!given.device_kind().empty()) device = OfKind(given.device_kind(), devices);
  if (!device.ok()) return device;
  if (given.device_memory_bytes() < 0 || given.host_memory_bytes() < 0)
    return absl::InvalidArgumentError("machine: a number of bytes is below 0");
  if (given.host_memory_bytes() > 0) device->host_bytes = given.host_memory_bytes();
  if (given.device_memory_bytes() > 0) device->capacity_bytes = given.device_memory_bytes();
  if (device->capacity_bytes > 0) return device;
  return absl::InvalidArgumentError(
      absl::StrCat("machine.device_memory_bytes: nothing is known of the memory of a \"",
                   given.device_kind(), "\": give it"));
}

}  // namespace snug::server

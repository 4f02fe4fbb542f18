// Prints a table, in Markdown: per op the bytes that it moves by its header's formula, its time,
// the share of the copy bandwidth measured in the same run, and the ratio of its time to that of
// LibTorch's op of the same function, or of LibTorch's ops where it has no single one.
//
//   kernels_benchmark [--device cpu|cuda] [--mib 64] [--width 4096] [--seconds 0.3] [--op name]
//
// On a machine without the device the figures are "not measured".
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "tests/bench/kernels/device.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

struct Options {
  std::string device = "cpu", op;
  int64_t mib = 64, width = 4096;
  double seconds = 0.3;
};

double CopyBytesPerSecond(Device& device, const Options& options) {
  const int64_t bytes = options.mib << 20;
  const at::Tensor from = at::zeros({bytes}, at::TensorOptions(device.name()).dtype(at::kByte));
  const at::Tensor to = at::ones_like(from);
  const auto copy = [&] { device.Copy(to.data_ptr(), from.data_ptr(), bytes); };
  return 2.0 * static_cast<double>(bytes) / device.Seconds(copy, options.seconds, false);
}

void OrDie(const char* op, kernels::Error error) {
  if (error.ok()) return;
  std::fprintf(stderr, "%s: %s: %s\n", op, kernels::ToString(error.code), error.parameter);
  std::exit(1);
}

constexpr const char* kTypeNames[] = {"fp32", "bf16", "fp16"};

void PrintRow(Device& device, const Row& row, const Shape& shape, const Options& options,
              double copy) {
  const Case work = row.make(shape);
  const double own =
      device.Seconds([&] { OrDie(row.op, work.own(device.stream())); }, options.seconds, false);
  const double rate = static_cast<double>(work.bytes) / own;
  std::printf("| %s | %s | %.1f | %.3f | %.1f | %.2f |", row.op,
              kTypeNames[static_cast<int>(shape.dtype)],
              static_cast<double>(work.bytes) / (1 << 20), own * 1e3, rate * 1e-9, rate / copy);
  if (work.torch == nullptr) {
    std::printf(" - | - |\n");
    return;
  }
  const double torch = device.Seconds(work.torch, options.seconds, true);
  std::printf(" %.3f | %.2f |\n", torch * 1e3, own / torch);
}

void PrintTable(Device* device, const Options& options) {
  const double copy = device == nullptr ? 0.0 : CopyBytesPerSecond(*device, options);
  if (device != nullptr) {
    std::printf("%s, %d threads, operands of %ld MiB, copies at %.1f GB/s\n\n",
                device->name().c_str(), at::get_num_threads(), static_cast<long>(options.mib),
                copy * 1e-9);
  }
  std::printf("| op | type | MiB moved | ms | GB/s | of copy | LibTorch ms | ratio |\n");
  std::printf("|---|---|---:|---:|---:|---:|---:|---:|\n");
  for (const Row& row : Rows()) {
    if (std::string(row.op).find(options.op) == std::string::npos) continue;
    for (const kernels::DType dtype : {kernels::DType::kF32, kernels::DType::kBF16}) {
      if (device == nullptr) {
        std::printf("| %s | %s | not measured | | | | | |\n", row.op,
                    kTypeNames[static_cast<int>(dtype)]);
        continue;
      }
      const int64_t row_bytes = options.width * kernels::SizeOf(dtype);
      PrintRow(*device, row,
               {.N = std::max<int64_t>((options.mib << 20) / row_bytes, 1),
                .C = options.width,
                .dtype = dtype,
                .device = device->name()},
               options, copy);
      std::fflush(stdout);
    }
  }
}

int Run(const Options& options) {
  // Freed memory is kept, so that ops which allocate their results do not pay for its first touch.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  const c10::InferenceMode no_autograd;
  const std::unique_ptr<Device> device = options.device == "cpu" ? OpenCpu() : OpenCuda();
  PrintTable(device.get(), options);
  return 0;
}

int RunCommandLine(int argc, char** argv) {
  Options options;
  CLI::App app("Benchmark of kernels against copies and LibTorch");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--op", options.op, "only ops whose name has this in it");
  app.add_option("--mib", options.mib, "of an (N, C) operand")->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "C")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of each measurement, at least");
  CLI11_PARSE(app, argc, argv);
  return Run(options);
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) { return snug::bench::RunCommandLine(argc, argv); }

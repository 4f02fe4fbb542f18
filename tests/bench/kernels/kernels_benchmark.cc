// Prints a table, in Markdown: per op the bytes that it moves by its header's formula, its time,
// the share of the bandwidth of a copy, and the ratio of its time to that of LibTorch's op of the
// same function, or of LibTorch's ops where it has no single one. The three take turns.
//
//   kernels_benchmark [--device cpu|cuda] [--mib 64|512] [--width 4096] [--seconds 0.3] [--op name]
//   kernels_benchmark --list | --bytes
//
// An operand has 64 MiB on a CPU and 512 MiB on a GPU, whose caches of up to 60 MB would otherwise
// hold much of it. On a machine without the device the figures are "not measured".
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/kernels/device.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

struct Options {
  std::string device = "cpu", op;
  int64_t mib = 0, width = 4096;
  double seconds = 0.3;
  bool list = false, bytes = false;
};

constexpr const char* kTypeNames[] = {"fp32", "bf16", "fp16"};
constexpr kernels::DType kTypes[] = {kernels::DType::kF32, kernels::DType::kBF16};

const char* NameOf(kernels::DType type) { return kTypeNames[static_cast<int>(type)]; }

// What every row is measured beside.
class Copy {
 public:
  Copy(Device& device, int64_t mib)
      : device_(device),
        from_(at::zeros({mib << 20}, at::TensorOptions(device.name()).dtype(at::kByte))),
        to_(at::ones_like(from_)) {}
  void Run() const { device_.Copy(to_.data_ptr(), from_.data_ptr(), from_.numel()); }
  double bytes() const { return 2.0 * static_cast<double>(from_.numel()); }

 private:
  Device& device_;
  const at::Tensor from_, to_;
};

void OrDie(const char* op, kernels::Error error) {
  if (error.ok()) return;
  std::fprintf(stderr, "%s: %s: %s\n", op, kernels::ToString(error.code), error.parameter);
  std::exit(1);
}

// Returns the copy's bytes a second.
double PrintRow(Device& device, const Row& row, kernels::DType type, const Options& options,
                const Copy& copy) {
  const int64_t row_bytes = options.width * kernels::SizeOf(type);
  const int64_t rows = std::max<int64_t>((options.mib << 20) / row_bytes, 1);
  Operands operands(rows, options.width, type, device.name());
  const Case work = row.make(operands);
  std::vector<Timed> calls = {{[&] { copy.Run(); }},
                              {[&] { OrDie(row.op, work.own(device.stream())); }}};
  if (work.torch != nullptr) calls.push_back({work.torch, true});
  const std::vector<double> seconds = device.Seconds(calls, options.seconds);
  const double rate = static_cast<double>(work.bytes) / seconds[1];
  const double copy_rate = copy.bytes() / seconds[0];
  std::printf("| %s | %s | %.1f | %.3f | %.1f | %.2f |", row.op, NameOf(type),
              static_cast<double>(work.bytes) / (1 << 20), seconds[1] * 1e3, rate * 1e-9,
              rate / copy_rate);
  if (work.torch == nullptr) {
    std::printf(" - | - |\n");
  } else {
    std::printf(" %.3f | %.2f |\n", seconds[2] * 1e3, seconds[1] / seconds[2]);
  }
  std::fflush(stdout);
  return copy_rate;
}

void PrintTable(Device* device, const Options& options) {
  std::printf("| op | type | MiB moved | ms | GB/s | of copy | LibTorch ms | ratio |\n");
  std::printf("|---|---|---:|---:|---:|---:|---:|---:|\n");
  std::optional<Copy> copy;
  if (device != nullptr) copy.emplace(*device, options.mib);
  double fastest = 0.0;
  for (const Row& row : AllRows()) {
    if (std::string(row.op).find(options.op) == std::string::npos) continue;
    for (const kernels::DType type : kTypes) {
      if (device == nullptr) {
        std::printf("| %s | %s | not measured | | | | | |\n", row.op, NameOf(type));
      } else {
        fastest = std::max(fastest, PrintRow(*device, row, type, options, *copy));
      }
    }
  }
  if (device == nullptr) return;
  std::printf("\n%s, %d threads, operands of %ld MiB, copies at up to %.1f GB/s\n",
              device->name().c_str(), at::get_num_threads(), static_cast<long>(options.mib),
              fastest * 1e-9);
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

int List() {
  for (const Row& row : AllRows()) std::printf("%s\n", row.op);
  return 0;
}

// op|bytes an element in fp32|in bf16
int ListBytes(const Options& options) {
  for (const Row& row : AllRows()) {
    std::printf("%s", row.op);
    for (const kernels::DType type : kTypes) {
      Operands operands(64, options.width, type, "cpu");
      const auto bytes = static_cast<double>(row.make(operands).bytes);
      std::printf("|%.4g", bytes / static_cast<double>(operands.elements()));
    }
    std::printf("\n");
  }
  return 0;
}

int RunCommandLine(int argc, char** argv) {
  Options options;
  CLI::App app("Benchmark of kernels against copies and LibTorch");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--op", options.op, "only ops whose name has this in it");
  app.add_option("--mib", options.mib, "of an (N, C) operand; default 64, on a GPU 512")
      ->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "C")->check(CLI::PositiveNumber);
  app.add_option("--seconds", options.seconds, "of each measurement, at least");
  app.add_flag("--list", options.list, "only the names of the rows");
  app.add_flag("--bytes", options.bytes, "only the bytes that the rows' ops move");
  CLI11_PARSE(app, argc, argv);
  if (options.mib == 0) options.mib = options.device == "cpu" ? 64 : 512;
  if (options.list) return List();
  if (options.bytes) return ListBytes(options);
  return Run(options);
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) { return snug::bench::RunCommandLine(argc, argv); }

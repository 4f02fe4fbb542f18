#include "worker/train/measure_rates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "worker/execute/gemm.h"

namespace snug::train {
namespace {

// Of a model's linear layer over a batch: large enough for full speed, 1 GFLOP.
constexpr int64_t kRows = 512, kWide = 1024, kTerms = 1024;
// Far more than caches hold, so that it is memory that is measured.
constexpr int64_t kElements = 8 << 20;
constexpr int kRepeats = 4;  // The fastest counts: others only show what else ran.

double FastestSeconds(const std::function<void()>& run) {
  run();  // Prepared now: threads, packed operands, pages.
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

double FlopsPerSecond(program::DType dtype) {
  const at::ScalarType type = dtype == program::DType::kBF16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor a = at::ones({kRows, kTerms}, type), b = at::ones({kWide, kTerms}, type);
  at::Tensor c = at::empty({kRows, kWide}, at::kFloat);
  const execute::GemmCall call{.a = a.data_ptr(),
                               .b = b.data_ptr(),
                               .c = c.data_ptr(),
                               .m = kRows,
                               .n = kWide,
                               .k = kTerms,
                               .a_stride = kTerms,
                               .b_stride = kTerms,
                               .c_stride = kWide,
                               .b_transposed = true,  // As weights lie.
                               .dtype = dtype};
  return 2.0 * kRows * kWide * kTerms / FastestSeconds([&] { execute::Gemm(call); });
}

// y = a + b: as most of what is no product, it reads more than it writes.
double BytesPerSecond() {
  const at::Tensor a = at::ones({kElements}, at::kFloat), b = at::ones({kElements}, at::kFloat);
  at::Tensor y = at::empty({kElements}, at::kFloat);
  constexpr double kBytes = 3.0 * sizeof(float) * kElements;
  return kBytes / FastestSeconds([&] { at::add_out(y, a, b); });
}

}  // namespace

program::MachineRates MeasureRates() {
  return {.f32_flops_per_s = FlopsPerSecond(program::DType::kF32),
          .bf16_flops_per_s = FlopsPerSecond(program::DType::kBF16),
          .bytes_per_s = BytesPerSecond()};
}

}  // namespace snug::train

// What runs of ops cost, and how fast a machine works: what the time of a plan is reckoned by. No
// size depends on it, but for what a pass of the head takes on a GPU.
#ifndef WORKER_PROGRAM_RATES_H_
#define WORKER_PROGRAM_RATES_H_

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "worker/program/model_config.h"

namespace snug::program {

// What bounds a run; a machine does each at a rate of its own. One run may be bounded by several.
enum class Limit : uint8_t {
  kProducts,   // Flops of matrix products with no narrow side,
  kNarrow,     // of those with one, as an adapter's,
  kAttention,  // and of attention.
  kMatrices,   // Bytes of the products' matrices: read, and arranged, by each pass over some rows.
  kPasses,     // Bytes read and written by everything else.
  kToHost,     // Bytes copied from the device to the host,
  kFromHost,   // and back.
  kRuns,       // Runs: what it takes to start one.
};
inline constexpr size_t kLimits = 8;
inline constexpr const char* kLimitNames[kLimits] = {
    "products", "narrow_products", "attention", "matrices",
    "passes",   "to_host",         "from_host", "runs"};
inline constexpr int64_t kNarrowSide = 64;  // A side below it is narrow.

// Amounts by what bounds them: flops, bytes and runs.
struct Work {
  std::array<double, kLimits> amounts = {};

  double& operator[](Limit limit) { return amounts[static_cast<size_t>(limit)]; }
  double operator[](Limit limit) const { return amounts[static_cast<size_t>(limit)]; }
  Work& operator+=(const Work& other) {
    for (size_t i = 0; i < kLimits; ++i) amounts[i] += other.amounts[i];
    return *this;
  }
  double flops() const {
    return (*this)[Limit::kProducts] + (*this)[Limit::kNarrow] + (*this)[Limit::kAttention];
  }
};

// Of each amount so much in a second, at one compute dtype.
struct Rates {
  std::array<double, kLimits> per_second = Of(1e12, 5e10).per_second;

  // Where only the speeds of products and of memory are known. A narrow product of rank 16 does 16
  // flops per byte of its rows, at most as many as others. A copy between a GPU and the host has a
  // sixtieth of the memory's rate (PCIe 5 beside HBM 3). Nothing is known of what it takes to start
  // a run: no time.
  static constexpr Rates Of(double flops_per_s, double bytes_per_s) {
    return {{flops_per_s, std::min(flops_per_s, 16.0 * bytes_per_s), flops_per_s, bytes_per_s,
             bytes_per_s, bytes_per_s / 60.0, bytes_per_s / 60.0,
             std::numeric_limits<double>::infinity()}};
  }
  double& operator[](Limit limit) { return per_second[static_cast<size_t>(limit)]; }
  double operator[](Limit limit) const { return per_second[static_cast<size_t>(limit)]; }
  auto operator<=>(const Rates&) const = default;
};

// A machine that nothing is known of has 1 TFLOP/s and 50 GB/s: what a product costs against a pass
// over memory on most devices, within a factor of two.
struct MachineRates {
  Rates f32, bf16;
  // On a GPU: rows of a pass of the head, as many as its products need to be fast (head_rows.h);
  // 0: not measured.
  int32_t head_rows = 0;

  const Rates& At(DType compute) const { return compute == DType::kBF16 ? bf16 : f32; }
  auto operator<=>(const MachineRates&) const = default;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_RATES_H_

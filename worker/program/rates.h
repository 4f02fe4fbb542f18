// How fast a machine works: what the time of a plan is reckoned by. No size depends on it.
#ifndef WORKER_PROGRAM_RATES_H_
#define WORKER_PROGRAM_RATES_H_

#include <compare>

#include "worker/program/model_config.h"

namespace snug::program {

// At one compute dtype. A machine that nothing is known of has 1 TFLOP/s and 50 GB/s: what a
// product costs against a pass over memory on most devices, within a factor of two.
struct Rates {
  double flops_per_s = 1e12;  // Of matrix products and attention.
  double bytes_per_s = 5e10;  // Read and written by everything else.
};

struct MachineRates {
  double f32_flops_per_s = Rates().flops_per_s;
  double bf16_flops_per_s = Rates().flops_per_s;
  double bytes_per_s = Rates().bytes_per_s;

  Rates At(DType compute) const {
    return {.flops_per_s = compute == DType::kBF16 ? bf16_flops_per_s : f32_flops_per_s,
            .bytes_per_s = bytes_per_s};
  }
  auto operator<=>(const MachineRates&) const = default;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_RATES_H_

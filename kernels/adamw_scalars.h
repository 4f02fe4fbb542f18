// What AdamW on the CPU and on CUDA have in common: the scalars of one update, as fp32.
#ifndef KERNELS_ADAMW_SCALARS_H_
#define KERNELS_ADAMW_SCALARS_H_

#include <cmath>

#include "kernels/adamw.h"

namespace snug::kernels {

struct AdamWScalars {
  float grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size,
      sqrt_correction2, eps;
};

inline AdamWScalars ScalarsOf(const AdamWParams& p) {
  const double step = static_cast<double>(p.step);
  const double correction1 = 1.0 - std::pow(p.beta1, step);
  const double correction2 = 1.0 - std::pow(p.beta2, step);
  AdamWScalars s = {};
  s.grad_scale = p.grad_scale;
  s.decay = static_cast<float>(1.0 - p.lr * p.weight_decay);
  s.one_minus_beta1 = static_cast<float>(1.0 - p.beta1);
  s.beta2 = static_cast<float>(p.beta2);
  s.one_minus_beta2 = static_cast<float>(1.0 - p.beta2);
  s.minus_step_size = static_cast<float>(-(p.lr / correction1));
  s.sqrt_correction2 = static_cast<float>(std::sqrt(correction2));
  s.eps = static_cast<float>(p.eps);
  return s;
}

}  // namespace snug::kernels

#endif  // KERNELS_ADAMW_SCALARS_H_

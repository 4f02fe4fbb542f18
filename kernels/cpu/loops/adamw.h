// What the op and the loops of AdamW have in common.
#ifndef KERNELS_CPU_LOOPS_ADAMW_H_
#define KERNELS_CPU_LOOPS_ADAMW_H_

namespace snug::kernels {

// Scalars of one update, as fp32.
struct AdamWScalars {
  float grad_scale, decay, one_minus_beta1, beta2, one_minus_beta2, minus_step_size,
      sqrt_correction2, eps;
};

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_ADAMW_H_

// A sample of the rows of a linear's input, which its weight's gradient is estimated from: one
// matrix of bytes (program::FormOf), all kept rows, not weighted, then their weights, then their
// places among all rows.
#ifndef WORKER_EXECUTE_OPS_SAMPLE_H_
#define WORKER_EXECUTE_OPS_SAMPLE_H_

#include "kernels/sampling.h"
#include "worker/execute/op_run.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/program/stash.h"

namespace snug::execute {

struct Sample {
  float* weights = nullptr;
  int32_t* index = nullptr;
  View rows;
};

inline bool IsSample(const View& input) { return input.dtype == program::DType::kU8; }

// Of rows of `width` elements, two at least.
inline Sample SampleIn(const View& form, int64_t width) {
  const int64_t element_bytes = (form.width - program::kSampledRowBytes) / width;
  const auto dtype = element_bytes == 4 ? program::DType::kF32 : program::DType::kBF16;
  const View rows = {form.data, form.rows, width, dtype};
  auto* weights = reinterpret_cast<float*>(form.as<char>() + (rows.bytes() + 3) / 4 * 4);
  return {weights, reinterpret_cast<int32_t*>(weights + form.rows), rows};
}

// to[i] = weights[i] from[index[i]], rounded once: of the gradient, what stands beside the sample.
inline void GatherWeighted(const OpRun& run, const View& from, const Sample& sample,
                           const View& to) {
  Check("GatherScaledRows", kernels::GatherScaledRows({.x = from.data,
                                                       .index = sample.index,
                                                       .weights = sample.weights,
                                                       .y = to.data,
                                                       .N = to.rows,
                                                       .C = to.width,
                                                       .x_rows = from.rows,
                                                       .x_stride = from.width,
                                                       .y_stride = to.width,
                                                       .dtype = KernelType(from)},
                                                      run.stream()));
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_SAMPLE_H_

// Products with a frozen weight in 4 or 8 bits: y (+)= x W'^T and dx (+)= dy W', W' being W
// dequantised and rounded to the compute type. Each is rounded once to that type before it is added
// to what is there, as PEFT adds an adapter to what a quantised module gives.
#ifndef WORKER_EXECUTE_OPS_FROZEN_PRODUCT_H_
#define WORKER_EXECUTE_OPS_FROZEN_PRODUCT_H_

#include <algorithm>

#include "kernels/frozen_linear.h"
#include "worker/execute/ops/cast.h"

namespace snug::execute {

// From row `first_row` on, at which a group of codes begins (program::Quantize).
inline kernels::FrozenWeight FrozenRows(const View& weight) {
  kernels::FrozenWeight rows = *weight.quantized;
  const int64_t first = weight.first_row * weight.width;
  if (rows.kind == kernels::FrozenKind::kInt8) {
    rows.int8.codes += weight.first_row * rows.int8.codes_stride;
    rows.int8.absmax += weight.first_row;
    return rows;
  }
  rows.nf4.codes = static_cast<uint8_t*>(rows.nf4.codes) + kernels::Nf4CodeBytes(first);
  rows.nf4.absmax += kernels::Nf4Groups(first);
  rows.nf4.absmax_codes += kernels::Nf4Blocks(first);
  return rows;
}

using FrozenKernel = kernels::Error (*)(const kernels::FrozenLinearParams&, kernels::Stream);

// `in` and `out` have the same rows.
inline void MultiplyFrozen(const OpRun& run, FrozenKernel kernel, const View& in, const View& out) {
  const View& weight = run.parameters[0].value;
  const int64_t threads = run.device->machine().threads;
  const int64_t bytes = run.stream() ? 0 : kernels::FrozenLinearWorkspace(threads);
  const Scratch workspace(run, bytes);
  Check("FrozenLinear", kernel({.in = in.data,
                                .W = FrozenRows(weight),
                                .out = out.data,
                                .M = in.rows,
                                .N = weight.rows,
                                .K = weight.width,
                                .in_stride = in.width,
                                .out_stride = out.width,
                                .dtype = KernelType(in),
                                .workspace = workspace.data(),
                                .workspace_bytes = bytes},
                               run.stream()));
}

// The op's first parameter is the weight. `kernel`: FrozenLinearForward from the op's input to its
// output, FrozenLinearBackward from the output's gradient to the input's.
inline void FrozenProduct(const OpRun& run, FrozenKernel kernel, const View& in, const View& out,
                          bool add) {
  if (!add) return MultiplyFrozen(run, kernel, in, out);
  const int64_t most = std::min(program::PartRows(run.device->machine()), in.rows);
  const Scratch part(run, most, out.width, out.dtype);
  for (int64_t first = 0; first < in.rows; first += most) {
    const int64_t count = std::min(most, in.rows - first);
    const View product = part.First(count);
    MultiplyFrozen(run, kernel, in.Rows(first, count), product);
    AddInto(run, product, out.Rows(first, count));
  }
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_FROZEN_PRODUCT_H_

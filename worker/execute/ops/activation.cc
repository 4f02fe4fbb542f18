// y = activation(x), and its backward, both also in place. Under two_bit the forward writes codes
// of x beside y, and the backward reads these in the place of x.
#include "kernels/activation.h"

#include <algorithm>

#include "worker/execute/ops/activation.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/two_bit.h"

namespace snug::execute {
namespace {

void BackwardFromCodes(const OpRun& run) {
  const View &dy = run.d_out[0], &dx = run.d_in[0];
  const TwoBitForm form = TwoBitFormIn(run.in[0], dy.width);
  kernels::CodeBackwardParams p = {.dy = dy.data,
                                   .codes = form.codes,
                                   .dx = dx.data,
                                   .N = dy.rows,
                                   .C = dy.width,
                                   .dy_stride = dy.width,
                                   .code_stride = form.code_stride,
                                   .dx_stride = dy.width,
                                   .dtype = KernelType(dy)};
  std::ranges::copy(kernels::TwoBitOf(ActivationOf(run)).slope, p.slope);
  Check("CodeBackward", kernels::CodeBackward(p, run.stream()));
}

}  // namespace

void ActivationForward(const OpRun& run) {
  const View& x = run.in[0];
  const TwoBitForm form = TwoBitFormIn(run.out[1], x.width);
  Check("ActivationForward",
        kernels::ActivationForward({.x = x.data,
                                    .y = run.out[0].data,
                                    .codes = form.codes,
                                    .N = x.rows,
                                    .C = x.width,
                                    .x_stride = x.width,
                                    .y_stride = x.width,
                                    .code_stride = form.code_stride,
                                    .dtype = KernelType(x),
                                    .activation = ActivationOf(run),
                                    .two_bit = kernels::TwoBitOf(ActivationOf(run))},
                                   run.stream()));
}

void ActivationBackward(const OpRun& run) {
  if (IsTwoBitForm(run.in[0])) return BackwardFromCodes(run);
  const View& x = run.in[0];
  Check("ActivationBackward", kernels::ActivationBackward({.dy = run.d_out[0].data,
                                                           .x = x.data,
                                                           .dx = run.d_in[0].data,
                                                           .N = x.rows,
                                                           .C = x.width,
                                                           .dy_stride = x.width,
                                                           .x_stride = x.width,
                                                           .dx_stride = x.width,
                                                           .dtype = KernelType(x),
                                                           .activation = ActivationOf(run)},
                                                          run.stream()));
}

}  // namespace snug::execute

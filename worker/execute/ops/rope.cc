// Rotates each head of q or k by its row's position, or its first elements; backward rotates back.
#include "kernels/rope.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {
namespace {

kernels::RopeParams Params(const OpRun& run, const View& x, const View& y) {
  const program::OpAttributes& op = run.op->attributes;
  return {.x = x.data,
          .y = y.data,
          .cos = op.local ? run.batch->local_cos : run.batch->cos,
          .sin = op.local ? run.batch->local_sin : run.batch->sin,
          .N = x.rows,
          .heads = op.heads,
          .D = op.head_width,
          .R = op.rotary_width,
          .x_stride = x.width,
          .y_stride = y.width,
          .dtype = KernelType(x)};
}

}  // namespace

void RopeForward(const OpRun& run) {
  Check("RopeForward", kernels::RopeForward(Params(run, run.in[0], run.out[0]), run.stream()));
}

void RopeBackward(const OpRun& run) {
  Check("RopeBackward",
        kernels::RopeBackward(Params(run, run.d_out[0], run.d_in[0]), run.stream()));
}

}  // namespace snug::execute

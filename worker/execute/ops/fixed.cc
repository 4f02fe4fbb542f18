// Streams in fixed point, exact to the bit where something is added and taken away again
// (kernels/reversible.h): v = fixed(x), x = float(v), w = v + fixed(f) and its inverse. None has a
// backward: the tape passes gradients on by name, as rounding counts as the identity.
#include "kernels/reversible.h"

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"

namespace snug::execute {
namespace {

// `v`: the stream, absent where it begins; `f`: what is added, absent where it is only read.
kernels::FixedAddParams ParamsOf(const OpRun& run, const View& v, const View& f) {
  const View& shape = v ? v : f;
  return {.v = v.as<int32_t>(),
          .f = f.data,
          .overflow = run.batch->overflow,
          .N = shape.rows,
          .C = shape.width,
          .v_stride = shape.width,
          .f_stride = shape.width,
          .v_out_stride = shape.width,
          .y_stride = shape.width,
          .dtype = f ? KernelType(f) : kernels::DType::kF32};
}

void Add(const OpRun& run, const View& v, const View& f, bool subtract) {
  kernels::FixedAddParams params = ParamsOf(run, v, f);
  params.v_out = run.out[0].as<int32_t>();
  params.subtract = subtract;
  Check("FixedAdd", kernels::FixedAdd(params, run.stream()));
}

}  // namespace

void ToFixedForward(const OpRun& run) { Add(run, {}, run.in[0], /*subtract=*/false); }

void FromFixedForward(const OpRun& run) {
  kernels::FixedAddParams params = ParamsOf(run, run.in[0], {});
  params.y = run.out[0].data;
  params.y_dtype = KernelType(run.out[0]);
  Check("FixedAdd", kernels::FixedAdd(params, run.stream()));
}

void FixedAddForward(const OpRun& run) { Add(run, run.in[0], run.in[1], /*subtract=*/false); }

void FixedSubtractForward(const OpRun& run) { Add(run, run.in[0], run.in[1], /*subtract=*/true); }

}  // namespace snug::execute

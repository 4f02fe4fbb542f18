// y = z W^T (+ b) + scale za B^T; z (N, in) and W (out, in) in the compute dtype, za (N, R) and B
// (out, R) fp32. In bf16 the second product runs in fp32 and is added to the rounded first, as PEFT
// does. Backward: dz (+)= dy W, dza = scale dy B, dB += scale dy^T za.
#include <ATen/ATen.h>

#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {
namespace {

// The adapter's gradients for rows [first, ...), whose dy is given in fp32.
void AdapterGradients(const OpRun& run, int64_t first, const View& dy) {
  const double scale = run.op->attributes.scale;
  if (run.d_in[1]) {
    Product(run.d_in[1].Rows(first, dy.rows), Matrix(dy), Matrix(run.parameters[1].value),
            run.adds(1), scale);
  }
  if (run.parameters[1].gradient) {
    Product(run.parameters[1].gradient, Matrix(dy).t(), Matrix(run.in[1].Rows(first, dy.rows)),
            /*add=*/true, scale);
  }
}

}  // namespace

void LoraLinearForward(const OpRun& run) {
  const View &z = run.in[0], &za = run.in[1], &y = run.out[0];
  const double scale = run.op->attributes.scale;
  const at::Tensor b_transposed = Matrix(run.parameters[1].value).t();
  const bool bias = LayBias(run, 2);
  Product(y, Matrix(z), Matrix(run.parameters[0].value).t(), /*add=*/bias);
  if (y.dtype == program::DType::kF32) {
    return Product(y, Matrix(za), b_transposed, /*add=*/true, scale);
  }
  ForEachPiece(y.rows, y.width, [&](int64_t first, const View& piece) {
    const View to = y.Rows(first, piece.rows);
    Cast(to, piece);
    Product(piece, Matrix(za.Rows(first, piece.rows)), b_transposed, /*add=*/true, scale);
    Cast(piece, to);
  });
}

void LoraLinearBackward(const OpRun& run) {
  const View& dy = run.d_out[0];
  if (run.d_in[0]) Product(run.d_in[0], Matrix(dy), Matrix(run.parameters[0].value), run.adds(0));
  if (!run.d_in[1] && !run.parameters[1].gradient) return;
  if (dy.dtype == program::DType::kF32) return AdapterGradients(run, 0, dy);
  ForEachPiece(dy.rows, dy.width, [&](int64_t first, const View& piece) {
    Cast(dy.Rows(first, piece.rows), piece);
    AdapterGradients(run, first, piece);
  });
}

}  // namespace snug::execute

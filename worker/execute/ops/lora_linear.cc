// y = z W^T (+ b) + scale za B^T; z (N, in) and W (out, in) in the compute dtype, za (N, R) and B
// (out, R) fp32; za may be columns of a wider value, which several modules share. In bf16 all is
// summed in fp32 and y rounded once; PEFT rounds the base's share by itself.
// Backward: dz (+)= dy W, dza = scale dy B, dB += scale dy^T za.
#include <ATen/ATen.h>

#include <cstring>

#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {
namespace {

// This module's columns of za or of its gradient.
at::Tensor OwnColumns(const OpRun& run, const View& za) {
  return Matrix(za).narrow(1, run.op->attributes.za_column, run.parameters[1].value.width);
}

// The adapter's gradients for rows [first, ...), whose dy is given in fp32.
void AdapterGradients(const OpRun& run, int64_t first, const View& dy) {
  const double scale = run.op->attributes.scale;
  if (run.d_in[1]) {
    SumProduct(OwnColumns(run, run.d_in[1].Rows(first, dy.rows)), Matrix(dy),
               Matrix(run.parameters[1].value), /*add=*/true, scale);
  }
  if (run.parameters[1].gradient) {
    SumProduct(Matrix(run.parameters[1].gradient), Matrix(dy).t(),
               OwnColumns(run, run.in[1].Rows(first, dy.rows)), /*add=*/true, scale);
  }
}

}  // namespace

void LoraLinearForward(const OpRun& run) {
  const Term base = {Matrix(run.in[0]), Matrix(run.parameters[0].value).t()};
  const Term adapter = {OwnColumns(run, run.in[1]), Matrix(run.parameters[1].value).t(),
                        run.op->attributes.scale};
  SumOfProducts(run.out[0], {base, adapter}, /*add=*/LayBias(run, 2));
}

void LoraLinearBackward(const OpRun& run) {
  const View &dy = run.d_out[0], &dza = run.d_in[1];
  if (run.d_in[0]) Product(run.d_in[0], Matrix(dy), Matrix(run.parameters[0].value), run.adds(0));
  if (!dza && !run.parameters[1].gradient) return;
  // The first module to come leaves zeros for those that read the other columns.
  if (dza && !run.adds(1)) std::memset(dza.data, 0, static_cast<size_t>(dza.bytes()));
  if (dy.dtype == program::DType::kF32) return AdapterGradients(run, 0, dy);
  ForEachPiece(dy.rows, dy.width, [&](int64_t first, const View& piece) {
    Cast(dy.Rows(first, piece.rows), piece);
    AdapterGradients(run, first, piece);
  });
}

}  // namespace snug::execute

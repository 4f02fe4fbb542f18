// y = z W^T (+ b) + scale za B^T; z (N, in) and W (out, in) in the compute dtype, za (N, R) and B
// (out, R) fp32; za may be columns of a wider value, which several modules share. In bf16 all is
// summed in fp32 and y rounded once; PEFT rounds the base's share by itself.
// Backward: dz (+)= dy W, dza = scale dy B, dB (+)= scale dy^T za.
// W may be quantised; its share is then rounded by itself.
#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/frozen_product.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"

namespace snug::execute {
namespace {

// This module's columns of za or of its gradient.
Matrix OwnColumns(const OpRun& run, const View& za) {
  return Matrix(za).Columns(run.op->attributes.za_column, run.parameters[1].value.width);
}

// The adapter's gradients for rows [first, ...), whose dy is given in fp32.
void AdapterGradients(const OpRun& run, int64_t first, const View& dy) {
  const double scale = run.op->attributes.scale;
  if (run.d_in[1]) {
    SumProduct(run, OwnColumns(run, run.d_in[1].Rows(first, dy.rows)),
               {dy, run.parameters[1].value, scale}, /*add=*/true);
  }
  if (run.parameters[1].gradient) {
    SumProduct(run, run.parameters[1].gradient,
               {Matrix(dy).t(), OwnColumns(run, run.in[1].Rows(first, dy.rows)), scale},
               first > 0 || run.adds_to_parameter(1));
  }
}

}  // namespace

void LoraLinearForward(const OpRun& run) {
  const bool bias = LayBias(run, 2);
  const Term adapter = {OwnColumns(run, run.in[1]), Matrix(run.parameters[1].value).t(),
                        run.op->attributes.scale};
  if (run.parameters[0].value.quantized != nullptr) {
    FrozenProduct(run, kernels::FrozenLinearForward, run.in[0], run.out[0], bias);
    return SumOfProducts(run, run.out[0], {adapter}, /*add=*/true);
  }
  const Term base = {run.in[0], Matrix(run.parameters[0].value).t()};
  SumOfProducts(run, run.out[0], {base, adapter}, /*add=*/bias);
}

void LoraLinearBackward(const OpRun& run) {
  const View &dy = run.d_out[0], &dza = run.d_in[1];
  const View& weight = run.parameters[0].value;
  if (run.d_in[0] && weight.quantized != nullptr)
    FrozenProduct(run, kernels::FrozenLinearBackward, dy, run.d_in[0], run.adds(0));
  else if (run.d_in[0])
    Product(run, run.d_in[0], {dy, weight}, run.adds(0));
  if (!dza && !run.parameters[1].gradient) return;
  // The first module to come leaves zeros for those that read the other columns.
  if (dza && !run.adds(1)) run.Zero(dza);
  if (dy.dtype == program::DType::kF32) return AdapterGradients(run, 0, dy);
  ForEachPiece(run, dy.rows, dy.width, [&](int64_t first, const View& piece) {
    Cast(run, dy.Rows(first, piece.rows), piece);
    AdapterGradients(run, first, piece);
  });
}

}  // namespace snug::execute

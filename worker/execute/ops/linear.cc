// y = z W^T (+ b); z (N, in), W (out, in), b (out), y (N, out).
// Backward: dz (+)= dy W, dW (+)= dy^T z, db (+)= the sum of dy over rows.
// A frozen W may be quantised. dW may be estimated from a sample of z's rows; dz and db are exact.
#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/frozen_product.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/ops/sample.h"

namespace snug::execute {
namespace {

// From all rows, or estimated from a sample of them.
void WeightGradient(const OpRun& run) {
  const View &dy = run.d_out[0], &z = run.in[0], &dw = run.parameters[0].gradient;
  const bool add = run.adds_to_parameter(0);
  if (!IsSample(z)) return Product(run, dw, {Matrix(dy).t(), z}, add);
  const Sample sample = SampleIn(z, dw.width);
  const Scratch weighted(run, sample.rows.rows, dy.width, dy.dtype);
  GatherWeighted(run, dy, sample, weighted.view());
  Product(run, dw, {Matrix(weighted.view()).t(), sample.rows}, add);
}

}  // namespace

void LinearForward(const OpRun& run) {
  const bool bias = LayBias(run, 1);
  if (run.parameters[0].value.quantized != nullptr)
    return FrozenProduct(run, kernels::FrozenLinearForward, run.in[0], run.out[0], bias);
  Product(run, run.out[0], {run.in[0], Matrix(run.parameters[0].value).t()}, /*add=*/bias);
}

void LinearBackward(const OpRun& run) {
  const Matrix dy = run.d_out[0];
  if (run.parameters[0].value.quantized != nullptr) {
    if (run.d_in[0])
      FrozenProduct(run, kernels::FrozenLinearBackward, run.d_out[0], run.d_in[0], run.adds(0));
    return AddBiasGradient(run, 1);
  }
  if (run.d_in[0]) Product(run, run.d_in[0], {dy, run.parameters[0].value}, run.adds(0));
  if (run.parameters[0].gradient) WeightGradient(run);
  AddBiasGradient(run, 1);
}

}  // namespace snug::execute

// y = z W^T (+ b); z (N, in), W (out, in), b (out), y (N, out).
// Backward: dz (+)= dy W, dW += dy^T z, db += the sum of dy over rows.
#include <ATen/ATen.h>

#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {

void LinearForward(const OpRun& run) {
  const bool bias = LayBias(run, 1);
  Product(run.out[0], Matrix(run.in[0]), Matrix(run.parameters[0].value).t(), /*add=*/bias);
}

void LinearBackward(const OpRun& run) {
  const at::Tensor dy = Matrix(run.d_out[0]);
  if (run.d_in[0]) Product(run.d_in[0], dy, Matrix(run.parameters[0].value), run.adds(0));
  if (run.parameters[0].gradient) {
    Product(run.parameters[0].gradient, dy.t(), Matrix(run.in[0]), /*add=*/true);
  }
  AddBiasGradient(run, 1);
}

}  // namespace snug::execute

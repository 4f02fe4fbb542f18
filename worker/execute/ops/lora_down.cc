// za = dropout(z) A^T, fp32; z (N, in) in the compute dtype, A (R, in) fp32, za (N, R).
// Backward: dz (+)= mask (dza A) / (1 - p), dA += dza^T dropout(z).
// Where z is not fp32 or is dropped from, rows are converted kConvertRows at a time; else the
// products run on z itself.
#include <ATen/ATen.h>

#include "kernels/dropout.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {
namespace {

bool Drops(const OpRun& run) { return run.scalars.dropout && run.op->attributes.dropout > 0.0; }

bool Plain(const OpRun& run, program::DType dtype) {
  return dtype == program::DType::kF32 && !Drops(run);
}

// Drops from rows [first, ...) of the op's input, or of its gradient, which lie in `piece`.
void Drop(const OpRun& run, int64_t first, const View& piece) {
  if (!Drops(run)) return;
  const kernels::RandomSite site{.seed = run.scalars.seed,
                                 .step = static_cast<uint32_t>(run.scalars.step),
                                 .micro_batch = static_cast<uint32_t>(run.scalars.micro_batch),
                                 .op = RandomOpOf(run)};
  Check("Dropout", kernels::Dropout({.x = piece.data,
                                     .y = piece.data,
                                     .N = piece.rows,
                                     .C = piece.width,
                                     .x_stride = piece.width,
                                     .y_stride = piece.width,
                                     .first_row = first,
                                     .rate = run.op->attributes.dropout,
                                     .site = site},
                                    nullptr));
}

void ParameterGradient(const OpRun& run) {
  const View& da = run.parameters[0].gradient;
  const View &z = run.in[0], &dza = run.d_out[0];
  if (Plain(run, z.dtype)) return Product(da, Matrix(dza).t(), Matrix(z), /*add=*/true);
  ForEachPiece(z.rows, z.width, [&](int64_t first, const View& piece) {
    Cast(z.Rows(first, piece.rows), piece);
    Drop(run, first, piece);
    Product(da, Matrix(dza.Rows(first, piece.rows)).t(), Matrix(piece), /*add=*/true);
  });
}

void InputGradient(const OpRun& run) {
  const at::Tensor a = Matrix(run.parameters[0].value);
  const View &dz = run.d_in[0], &dza = run.d_out[0];
  if (Plain(run, dz.dtype)) return Product(dz, Matrix(dza), a, run.adds(0));
  ForEachPiece(dz.rows, dz.width, [&](int64_t first, const View& piece) {
    Product(piece, Matrix(dza.Rows(first, piece.rows)), a, /*add=*/false);
    Drop(run, first, piece);
    const View to = dz.Rows(first, piece.rows);
    run.adds(0) ? AddInto(piece, to) : Cast(piece, to);
  });
}

}  // namespace

void LoraDownForward(const OpRun& run) {
  const View &z = run.in[0], &za = run.out[0];
  const at::Tensor a_transposed = Matrix(run.parameters[0].value).t();
  if (Plain(run, z.dtype)) return Product(za, Matrix(z), a_transposed, /*add=*/false);
  ForEachPiece(z.rows, z.width, [&](int64_t first, const View& piece) {
    Cast(z.Rows(first, piece.rows), piece);
    Drop(run, first, piece);
    Product(za.Rows(first, piece.rows), Matrix(piece), a_transposed, /*add=*/false);
  });
}

void LoraDownBackward(const OpRun& run) {
  if (run.parameters[0].gradient) ParameterGradient(run);
  if (run.d_in[0]) InputGradient(run);
}

}  // namespace snug::execute

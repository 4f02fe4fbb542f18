// y = x + s A[:, ids]^T B^T, s = scale times the embedding's own: the adapter of an embedding, as
// PEFT has it. A (R, V) and B (C, R) fp32, x and y (N, C) in the compute dtype; in bf16 the sum is
// taken in fp32 and rounded once. The table itself is frozen, so x has no gradient.
// Backward: dB (+)= s dy^T za, dA[:, ids[i]] (+)= s dy[i] B in the order of the rows, where the
// columns za[i] = A[:, ids[i]] are gathered anew.
#include "kernels/columns.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"

namespace snug::execute {
namespace {

double AdapterScale(const OpRun& run) {
  return run.op->attributes.scale * run.op->attributes.table_scale;
}

// The batch's columns of A, as rows.
void GatherColumns(const OpRun& run, const View& za) {
  const View& a = run.parameters[0].value;
  Check("GatherColumns", kernels::GatherColumns({.x = a.as<float>(),
                                                 .ids = run.batch->ids,
                                                 .y = za.as<float>(),
                                                 .N = za.rows,
                                                 .R = za.width,
                                                 .V = a.width,
                                                 .x_stride = a.width,
                                                 .y_stride = za.width},
                                                run.stream()));
}

void AddColumns(const OpRun& run, const View& dza) {
  const View& da = run.parameters[0].gradient;
  Check("AddColumns", kernels::AddColumns({.x = da.as<float>(),
                                           .ids = run.batch->ids,
                                           .y = dza.as<float>(),
                                           .N = dza.rows,
                                           .R = dza.width,
                                           .V = da.width,
                                           .x_stride = da.width,
                                           .y_stride = dza.width},
                                          run.stream()));
}

// Of rows [first, ...), whose dy is given in fp32; their za becomes its own gradient.
void Gradients(const OpRun& run, int64_t first, const View& dy, const View& za) {
  const double scale = AdapterScale(run);
  const View &b = run.parameters[1].value, &db = run.parameters[1].gradient;
  SumProduct(run, db, {Matrix(dy).t(), za, scale}, first > 0 || run.adds_to_parameter(1));
  SumProduct(run, za, {dy, b, scale}, /*add=*/false);
}

}  // namespace

void LoraEmbeddingForward(const OpRun& run) {
  const View &x = run.in[0], &y = run.out[0], &b = run.parameters[1].value;
  const Scratch za(run, x.rows, b.width, program::DType::kF32);
  GatherColumns(run, za.view());
  if (y.data != x.data) run.Copy(y.data, x.data, x.bytes());
  Product(run, y, {za.view(), Matrix(b).t(), AdapterScale(run)}, /*add=*/true);
}

void LoraEmbeddingBackward(const OpRun& run) {
  const View& dy = run.d_out[0];
  const Scratch za(run, dy.rows, run.parameters[1].value.width, program::DType::kF32);
  GatherColumns(run, za.view());
  if (dy.dtype == program::DType::kF32) {
    Gradients(run, 0, dy, za.view());
  } else {
    ForEachPiece(run, dy.rows, dy.width, [&](int64_t first, const View& piece) {
      Cast(run, dy.Rows(first, piece.rows), piece);
      Gradients(run, first, piece, za.view().Rows(first, piece.rows));
    });
  }
  run.BeginGradient(0);
  AddColumns(run, za.view());
}

}  // namespace snug::execute

// y = x + s A[:, ids]^T B^T, s = scale times the embedding's own: the adapter of an embedding, as
// PEFT has it. A (R, V) and B (C, R) fp32, x and y (N, C) in the compute dtype; in bf16 the sum is
// taken in fp32 and rounded once. The table itself is frozen, so x has no gradient.
// Backward: dB += s dy^T za, dA[:, ids[i]] += s dy[i] B in the order of the rows, where the columns
// za[i] = A[:, ids[i]] are gathered anew.
#include <ATen/ATen.h>

#include <cstring>

#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {
namespace {

double ScaleOf(const OpRun& run) {
  return run.op->attributes.scale * run.op->attributes.table_scale;
}

// The batch's columns of A, as rows.
void GatherColumns(const OpRun& run, const View& za) {
  const View& a = run.parameters[0].value;
  for (int64_t i = 0; i < za.rows; ++i) {
    const float* column = a.as<float>() + run.batch->ids[i];
    float* row = za.as<float>() + i * za.width;
    for (int64_t r = 0; r < za.width; ++r) row[r] = column[r * a.width];
  }
}

void ScatterColumns(const OpRun& run, const View& dza) {
  const View& da = run.parameters[0].gradient;
  for (int64_t i = 0; i < dza.rows; ++i) {
    float* column = da.as<float>() + run.batch->ids[i];
    const float* row = dza.as<float>() + i * dza.width;
    for (int64_t r = 0; r < dza.width; ++r) column[r * da.width] += row[r];
  }
}

// Of rows whose dy is given in fp32; their za becomes its own gradient.
void Gradients(const OpRun& run, const View& dy, const View& za) {
  const double scale = ScaleOf(run);
  const at::Tensor b = Matrix(run.parameters[1].value), db = Matrix(run.parameters[1].gradient);
  SumProduct(db, Matrix(dy).t(), Matrix(za), /*add=*/true, scale);
  SumProduct(Matrix(za), Matrix(dy), b, /*add=*/false, scale);
}

}  // namespace

void LoraEmbeddingForward(const OpRun& run) {
  const View &x = run.in[0], &y = run.out[0], &b = run.parameters[1].value;
  const at::Tensor buffer = Scratch({x.rows, b.width}, program::DType::kF32);
  const View za{buffer.data_ptr(), x.rows, b.width, program::DType::kF32};
  GatherColumns(run, za);
  if (y.data != x.data) std::memcpy(y.data, x.data, static_cast<size_t>(x.bytes()));
  Product(y, Matrix(za), Matrix(b).t(), /*add=*/true, ScaleOf(run));
}

void LoraEmbeddingBackward(const OpRun& run) {
  const View& dy = run.d_out[0];
  const int64_t rank = run.parameters[1].value.width;
  const at::Tensor buffer = Scratch({dy.rows, rank}, program::DType::kF32);
  const View za{buffer.data_ptr(), dy.rows, rank, program::DType::kF32};
  GatherColumns(run, za);
  if (dy.dtype == program::DType::kF32) {
    Gradients(run, dy, za);
  } else {
    ForEachPiece(dy.rows, dy.width, [&](int64_t first, const View& piece) {
      Cast(dy.Rows(first, piece.rows), piece);
      Gradients(run, piece, za.Rows(first, piece.rows));
    });
  }
  ScatterColumns(run, za);
}

}  // namespace snug::execute

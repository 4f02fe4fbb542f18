// za = dropout(z) A^T, fp32; z (N, in) in the compute dtype, A (R, in) fp32, za (N, R). Modules
// that read the same z share the op: their matrices are stacked for one product, their columns of
// za lie beside one another. Backward: dz (+)= mask (dza A) / (1 - p), dA += dza^T dropout(z).
// Where z is not fp32 or is dropped from, rows are converted kConvertRows at a time; else the
// products run on z itself.
#include <ATen/ATen.h>

#include <cstring>

#include "kernels/dropout.h"
#include "worker/execute/ops/kernel_call.h"
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
  const kernels::RandomSite site = RandomSiteOf(run);
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

// The modules' matrices A, (R, in): the one that is there, or all of them one behind another.
class Stacked {
 public:
  explicit Stacked(const OpRun& run) : run_(run) {
    while (modules_ < run.parameters.size() && run.parameters[modules_].value) ++modules_;
    const View& first = run.parameters[0].value;
    if (modules_ > 1) rows_ = Scratch({Ranks(), first.width}, program::DType::kF32);
  }

  at::Tensor Values() const {
    if (modules_ == 1) return Matrix(run_.parameters[0].value);
    int64_t row = 0;
    for (size_t i = 0; i < modules_; ++i) {
      const View& a = run_.parameters[i].value;
      std::memcpy(At(row), a.data, static_cast<size_t>(a.bytes()));
      row += a.rows;
    }
    return rows_;
  }
  // For the sum of all gradients, which Add then gives to each.
  at::Tensor Gradients() const {
    return modules_ == 1 ? Matrix(run_.parameters[0].gradient) : rows_.zero_();
  }
  void Add() const {
    int64_t row = 0;
    for (size_t i = 0; i < modules_ && modules_ > 1; ++i) {
      const View &a = run_.parameters[i].value, &da = run_.parameters[i].gradient;
      if (da) AddInto({At(row), a.rows, a.width, a.dtype}, da);
      row += a.rows;
    }
  }

 private:
  int64_t Ranks() const {
    int64_t ranks = 0;
    for (size_t i = 0; i < modules_; ++i) ranks += run_.parameters[i].value.rows;
    return ranks;
  }
  float* At(int64_t row) const { return rows_.data_ptr<float>() + row * rows_.size(1); }

  const OpRun& run_;
  size_t modules_ = 0;
  at::Tensor rows_;
};

bool Trains(const OpRun& run) {
  for (const ParameterView& a : run.parameters) {
    if (a.gradient) return true;
  }
  return false;
}

void ParameterGradients(const OpRun& run) {
  const Stacked stacked(run);
  const at::Tensor da = stacked.Gradients();
  const View &z = run.in[0], &dza = run.d_out[0];
  if (Plain(run, z.dtype)) {
    SumProduct(da, Matrix(dza).t(), Matrix(z), /*add=*/true);
  } else {
    ForEachPiece(z.rows, z.width, [&](int64_t first, const View& piece) {
      Cast(z.Rows(first, piece.rows), piece);
      Drop(run, first, piece);
      SumProduct(da, Matrix(dza.Rows(first, piece.rows)).t(), Matrix(piece), /*add=*/true);
    });
  }
  stacked.Add();
}

void InputGradient(const OpRun& run) {
  const Stacked stacked(run);
  const at::Tensor a = stacked.Values();
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
  const Stacked stacked(run);
  const at::Tensor a_transposed = stacked.Values().t();
  if (Plain(run, z.dtype)) return Product(za, Matrix(z), a_transposed, /*add=*/false);
  ForEachPiece(z.rows, z.width, [&](int64_t first, const View& piece) {
    Cast(z.Rows(first, piece.rows), piece);
    Drop(run, first, piece);
    Product(za.Rows(first, piece.rows), Matrix(piece), a_transposed, /*add=*/false);
  });
}

void LoraDownBackward(const OpRun& run) {
  if (Trains(run)) ParameterGradients(run);
  if (run.d_in[0]) InputGradient(run);
}

}  // namespace snug::execute

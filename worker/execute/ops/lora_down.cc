// za = dropout(z) A^T, fp32; z (N, in) in the compute dtype, A (R, in) fp32, za (N, R). Modules
// that read the same z share the op: their matrices are stacked for one product, their columns of
// za lie beside one another. Backward: dz (+)= mask (dza A) / (1 - p), dA (+)= dza^T dropout(z).
// dA may be estimated from a sample of z's rows.
// Where z is not fp32 or is dropped from, rows are converted ConvertRows at a time; else the
// products run on z itself.
#include "kernels/dropout.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/ops/sample.h"

namespace snug::execute {
namespace {

bool Drops(const OpRun& run) { return run.scalars.dropout && run.op->attributes.dropout > 0.0; }

bool Plain(const OpRun& run, program::DType dtype) {
  return dtype == program::DType::kF32 && !Drops(run);
}

// Drops from rows [first, ...) of the run's input, or of its gradient, which lie in `piece`; with
// an index, from the rows that it names.
void Drop(const OpRun& run, int64_t first, const View& piece, const int32_t* index = nullptr) {
  if (!Drops(run)) return;
  const kernels::RandomSite site = RandomSiteOf(run);
  Check("Dropout", kernels::Dropout({.x = piece.data,
                                     .y = piece.data,
                                     .N = piece.rows,
                                     .C = piece.width,
                                     .x_stride = piece.width,
                                     .y_stride = piece.width,
                                     .first_row = index != nullptr ? 0 : run.first_row + first,
                                     .row_index = index,
                                     .rate = run.op->attributes.dropout,
                                     .site = site},
                                    run.stream()));
}

size_t Modules(const OpRun& run) {
  size_t modules = 0;
  while (modules < run.parameters.size() && run.parameters[modules].value) ++modules;
  return modules;
}

// Rows that the modules' matrices take together, unless there is one alone.
int64_t StackedRows(const OpRun& run) {
  const size_t modules = Modules(run);
  int64_t rows = 0;
  for (size_t i = 0; i < modules && modules > 1; ++i) rows += run.parameters[i].value.rows;
  return rows;
}

// The modules' matrices A, (R, in): the one that is there, or all of them one behind another.
class Stacked {
 public:
  explicit Stacked(const OpRun& run)
      : run_(run),
        modules_(Modules(run)),
        rows_(run, StackedRows(run), run.parameters[0].value.width, program::DType::kF32) {}

  View Values() const {
    if (modules_ == 1) return run_.parameters[0].value;
    int64_t row = 0;
    for (size_t i = 0; i < modules_; ++i) {
      const View& a = run_.parameters[i].value;
      run_.Copy(rows_.view().Rows(row, a.rows).data, a.data, a.bytes());
      row += a.rows;
    }
    return rows_.view();
  }
  // For the sum of all gradients, which Give then gives to each.
  View Gradients() const { return modules_ == 1 ? run_.parameters[0].gradient : rows_.view(); }
  // Whether what is there is a part of the sum.
  bool Adds() const { return modules_ == 1 && run_.adds_to_parameter(0); }
  void Give() const {
    int64_t row = 0;
    for (size_t i = 0; i < modules_ && modules_ > 1; ++i) {
      const View &a = run_.parameters[i].value, &da = run_.parameters[i].gradient;
      const View sum = rows_.view().Rows(row, a.rows);
      row += a.rows;
      if (!da) continue;
      if (run_.adds_to_parameter(i))
        AddInto(run_, sum, da);
      else
        run_.Copy(da.data, sum.data, sum.bytes());
    }
  }

 private:
  const OpRun& run_;
  const size_t modules_;
  const Scratch rows_;
};

bool Trains(const OpRun& run) {
  for (const ParameterView& a : run.parameters) {
    if (a.gradient) return true;
  }
  return false;
}

// The sum of gradients (+)= dza^T dropout(z), of the rows of z that the index names, or of all.
void GradientProduct(const OpRun& run, const Stacked& stacked, const View& dza, const View& z,
                     const int32_t* index) {
  const View da = stacked.Gradients();
  if (Plain(run, z.dtype)) return SumProduct(run, da, {Matrix(dza).t(), z}, stacked.Adds());
  ForEachPiece(run, z.rows, z.width, [&](int64_t first, const View& piece) {
    Cast(run, z.Rows(first, piece.rows), piece);
    Drop(run, first, piece, index == nullptr ? nullptr : index + first);
    SumProduct(run, da, {Matrix(dza.Rows(first, piece.rows)).t(), piece},
               first > 0 || stacked.Adds());
  });
}

void ParameterGradients(const OpRun& run) {
  const Stacked stacked(run);
  const View &z = run.in[0], &dza = run.d_out[0];
  if (dza.rows == 0) return;  // No product would write the sum.
  if (IsSample(z)) {
    const Sample sample = SampleIn(z, run.parameters[0].value.width);
    const Scratch weighted(run, sample.rows.rows, dza.width, dza.dtype);
    GatherWeighted(run, dza, sample, weighted.view());
    GradientProduct(run, stacked, weighted.view(), sample.rows, sample.index);
  } else {
    GradientProduct(run, stacked, dza, z, nullptr);
  }
  stacked.Give();
}

void InputGradient(const OpRun& run) {
  const Stacked stacked(run);
  const View a = stacked.Values();
  const View &dz = run.d_in[0], &dza = run.d_out[0];
  if (Plain(run, dz.dtype)) return Product(run, dz, {dza, a}, run.adds(0));
  ForEachPiece(run, dz.rows, dz.width, [&](int64_t first, const View& piece) {
    Product(run, piece, {dza.Rows(first, piece.rows), a}, /*add=*/false);
    Drop(run, first, piece);
    const View to = dz.Rows(first, piece.rows);
    run.adds(0) ? AddInto(run, piece, to) : Cast(run, piece, to);
  });
}

}  // namespace

void LoraDownForward(const OpRun& run) {
  const View &z = run.in[0], &za = run.out[0];
  const Stacked stacked(run);
  const Matrix a_transposed = Matrix(stacked.Values()).t();
  if (Plain(run, z.dtype)) return Product(run, za, {z, a_transposed}, /*add=*/false);
  ForEachPiece(run, z.rows, z.width, [&](int64_t first, const View& piece) {
    Cast(run, z.Rows(first, piece.rows), piece);
    Drop(run, first, piece);
    Product(run, za.Rows(first, piece.rows), {piece, a_transposed}, /*add=*/false);
  });
}

void LoraDownBackward(const OpRun& run) {
  if (Trains(run)) ParameterGradients(run);
  if (run.d_in[0]) InputGradient(run);
}

}  // namespace snug::execute

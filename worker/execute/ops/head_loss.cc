// The output projection and the loss: logits = s z W^T (+ bias), s mostly 1, loss = scale * sum of
// weight * cross-entropy, or what the op names in its place. A run is a pass of the tape's loop
// over the trained rows, which are gathered from z, so that the logits of all rows never exist;
// rows of weight 0 cost nothing. With gradients, in the same pass: dz of its rows, which may be
// written over z (untrained rows become 0), and dW added up in fp32. What is found of each trained
// row goes to the batch's row_loss, row_entropy and row_correct, and where forward is asked for
// them their logits to row_logits. Where all rows of z are trained (documents that are classified),
// a pass has these rows as they lie: nothing is gathered. With an adapter, logits = z W^T + scale
// za B^T; za (N, R) and B (V, R) fp32, W frozen: dza (which may be written over za) and dB come
// instead of dW. In bf16 all is summed in fp32 and rounded once. A frozen W may be quantised, where
// s is 1; its share is then rounded by itself.
#include "kernels/cross_entropy.h"
#include "kernels/target_loss.h"
#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/frozen_product.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/ops/row_moves.h"

namespace snug::execute {
namespace {

float Softcap(const OpRun& run) { return static_cast<float>(run.op->attributes.softcap); }
float Smoothing(const OpRun& run) { return static_cast<float>(run.op->attributes.smoothing); }

// The pass's weighted losses, and what else is seen of its tokens; `logits` become their gradients
// when these are wanted.
void CrossEntropy(const OpRun& run, const View& logits, bool gradient) {
  const Batch& batch = *run.batch;
  const bool mixed = batch.second_labels != nullptr;
  const int32_t* second = mixed ? batch.second_labels + run.first_row : nullptr;
  Check("CrossEntropy",
        kernels::CrossEntropy({.logits = logits.data,
                               .dlogits = gradient ? logits.data : nullptr,
                               .labels = batch.labels + run.first_row,
                               .second_labels = second,
                               .shares = mixed ? batch.shares + run.first_row : nullptr,
                               .weights = batch.weights + run.first_row,
                               .row_loss = batch.row_loss + run.first_row,
                               .row_entropy = batch.row_entropy + run.first_row,
                               .row_correct = batch.row_correct + run.first_row,
                               .N = logits.rows,
                               .V = logits.width,
                               .logits_stride = logits.width,
                               .dlogits_stride = logits.width,
                               .dtype = KernelType(logits),
                               .label_type = kernels::IndexType::kI32,
                               .scale = static_cast<float>(run.scalars.loss_scale),
                               .softcap = Softcap(run),
                               .label_smoothing = Smoothing(run)},
                              run.stream()));
}

// The same against a number per class.
void TargetLoss(const OpRun& run, const View& logits, bool gradient) {
  const Batch& batch = *run.batch;
  const bool binary = run.op->attributes.loss == program::Loss::kBinary;
  Check("TargetLoss", kernels::TargetLoss({.logits = logits.data,
                                           .dlogits = gradient ? logits.data : nullptr,
                                           .targets = batch.targets + run.first_row * logits.width,
                                           .weights = batch.weights + run.first_row,
                                           .row_loss = batch.row_loss + run.first_row,
                                           .row_entropy = batch.row_entropy + run.first_row,
                                           .row_correct = batch.row_correct + run.first_row,
                                           .N = logits.rows,
                                           .V = logits.width,
                                           .logits_stride = logits.width,
                                           .dlogits_stride = logits.width,
                                           .targets_stride = logits.width,
                                           .dtype = KernelType(logits),
                                           .kind = binary ? kernels::TargetLossKind::kBinary
                                                          : kernels::TargetLossKind::kSquare,
                                           .scale = static_cast<float>(run.scalars.loss_scale)},
                                          run.stream()));
}

// For who evaluates: losses may be written over the logits.
void KeepLogits(const OpRun& run, const View& logits) {
  if (run.batch->row_logits == nullptr) return;
  float* const to = run.batch->row_logits + run.first_row * logits.width;
  Cast(run, logits, View{to, logits.rows, logits.width, program::DType::kF32});
}

void Losses(const OpRun& run, const View& logits, bool gradient) {
  if (run.op->attributes.loss == program::Loss::kCrossEntropy)
    return CrossEntropy(run, logits, gradient);
  TargetLoss(run, logits, gradient);
}

// The last parameter, where there is one.
size_t BiasIndex(const OpRun& run) { return run.op->attributes.rank > 0 ? 2 : 1; }

Term AdapterTerm(const OpRun& run, const View& za) {
  return {za, Matrix(run.parameters[1].value).t(), run.op->attributes.scale};
}

// `za`: of the same rows, or absent.
void Logits(const OpRun& run, const View& rows, const View& za, const View& logits) {
  const View& weight = run.parameters[0].value;
  const bool bias = LayBias(run, BiasIndex(run), logits);
  if (weight.quantized != nullptr) {
    FrozenProduct(run, kernels::FrozenLinearForward, rows, logits, /*add=*/bias);
    if (za) SumOfProducts(run, logits, {AdapterTerm(run, za)}, /*add=*/true);
    return;
  }
  const Term base = {rows, Matrix(weight).t(), run.op->attributes.table_scale};
  if (!za) return SumOfProducts(run, logits, {base}, /*add=*/bias);
  SumOfProducts(run, logits, {base, AdapterTerm(run, za)}, /*add=*/bias);
}

// dza = scale dlogits B, dB (+)= scale dlogits^T za, in fp32: by parts of the logits where these
// are not.
void AdapterGradients(const OpRun& run, const View& za, const View& dlogits, const View& dza) {
  const double scale = run.op->attributes.scale;
  const Matrix all = dlogits, b = run.parameters[1].value, db = run.parameters[1].gradient;
  const auto add = [&](const Part& part, const Matrix& d) {
    SumProduct(run, dza.Rows(part.row, part.rows), {d, b.Rows(part.column, part.columns), scale},
               part.column > 0);
    SumProduct(run, db.Rows(part.column, part.columns),
               {d.t(), za.Rows(part.row, part.rows), scale},
               part.row > 0 || run.adds_to_parameter(1));
  };
  if (dlogits.dtype == program::DType::kF32) return add({0, 0, all.rows, all.columns}, all);
  ForEachPart(run, all.rows, all.columns, [&](const Part& part, const View& piece) {
    Cast(run, part.Of(all), piece);
    add(part, piece);
  });
}

// The pass's rows of an input, and their way back into its gradient. The executor hands over the
// rows themselves where all of the input's are trained, else the whole of it.
class TrainedRows {
 public:
  // `from` may be absent, and `to`, where no gradient is wanted.
  TrainedRows(const OpRun& run, const View& from, const View& to)
      : run_(run),
        to_(to),
        gathers_(from && !run.op->attributes.selected),
        gathered_(run, gathers_ ? run.rows : 0, from.width, from.dtype),
        rows_(gathers_ ? gathered_.view() : from) {
    if (gathers_) Gather(run, from, Index(), rows_);
  }

  const View& rows() const { return rows_; }
  // Of as many rows: where their gradient can be written when nobody reads them any more,
  const View& gradient() const { return gathers_ ? rows_ : to_; }
  // from where Return brings it to its place.
  void Return(const View& gradient) const {
    if (gathers_) return Scatter(run_, gradient, Index(), to_);
    if (gradient.data != to_.data) run_.Copy(to_.data, gradient.data, gradient.bytes());
  }

 private:
  const int64_t* Index() const { return run_.batch->trained_rows + run_.first_row; }

  const OpRun& run_;
  const View to_;
  const bool gathers_;
  const Scratch gathered_;
  const View rows_;
};

// In an order in which dlogits and z are read before dz takes the place of z.
void Gradients(const OpRun& run, const TrainedRows& z, const TrainedRows& za, const View& dlogits) {
  const double scale = run.op->attributes.table_scale;
  const auto& [weight, d_weight] = run.parameters[0];
  AddBiasGradient(run, BiasIndex(run), dlogits);
  if (za.rows()) {
    const Scratch dza(run, run.rows, za.rows().width, program::DType::kF32);
    AdapterGradients(run, za.rows(), dlogits, dza.view());
    za.Return(dza.view());
  }
  if (d_weight)
    Product(run, d_weight, {Matrix(dlogits).t(), z.rows(), scale}, run.adds_to_parameter(0));
  if (!run.d_in[0]) return;
  if (weight.quantized != nullptr)
    FrozenProduct(run, kernels::FrozenLinearBackward, dlogits, z.gradient(), /*add=*/false);
  else
    Product(run, z.gradient(), {dlogits, weight, scale}, /*add=*/false);
  z.Return(z.gradient());
}

void RunPass(const OpRun& run, bool gradient) {
  const TrainedRows z(run, run.in[0], run.d_in[0]), za(run, run.in[1], run.d_in[1]);
  const Scratch scratch(run, run.rows, run.parameters[0].value.rows, run.in[0].dtype);
  const View& logits = scratch.view();
  Logits(run, z.rows(), za.rows(), logits);
  if (!gradient) KeepLogits(run, logits);
  Losses(run, logits, gradient);
  if (gradient) Gradients(run, z, za, logits);
}

// With the last pass, all at once: none reads a row that is not trained.
void ZeroUntrained(const OpRun& run, const View& dz) {
  const Batch& batch = *run.batch;
  if (run.first_row + run.rows < batch.trained) return;
  ZeroOthers(run, batch.trained_rows, batch.trained, dz);
}

// What the model expects behind the last row, before the softcap.
void NextLogits(const OpRun& run) {
  const View &z = run.in[0], &weight = run.parameters[0].value;
  const View last = z.Rows(z.rows - 1, 1);
  const View za = run.in[1] ? run.in[1].Rows(z.rows - 1, 1) : View{};
  const Scratch logits(run, 1, weight.rows, z.dtype);
  Logits(run, last, za, logits.view());
  Cast(run, logits.view(), View{run.batch->next_logits, 1, weight.rows, program::DType::kF32});
}

}  // namespace

void HeadLossForward(const OpRun& run) {
  if (run.batch->next_logits != nullptr) return NextLogits(run);
  if (run.rows > 0) RunPass(run, /*gradient=*/false);
}

void HeadLossBackward(const OpRun& run) {
  if (run.rows > 0)
    RunPass(run, /*gradient=*/true);
  else
    run.BeginGradients();
  for (const View& d_in : run.d_in) {
    if (d_in && !run.op->attributes.selected) ZeroUntrained(run, d_in);
  }
}

}  // namespace snug::execute

// The output projection and the loss: logits = s z W^T (+ bias), s mostly 1, loss = scale * sum of
// weight * cross-entropy, or what the op names in its place. The trained rows are gathered
// kHeadChunkRows at a time, so that the logits of all rows never exist; rows of weight 0 cost
// nothing. With gradients, in the same pass: dz of the chunk, which may be written over z
// (untrained rows become 0), and dW added up in fp32. What is found of each trained row goes to the
// batch's row_loss, row_entropy and row_correct, and where forward is asked for them their logits
// to row_logits. Where all rows of z are trained (documents that are classified), a chunk is these
// rows as they lie: nothing is gathered. With an adapter, logits = z W^T + scale za B^T; za (N, R)
// and B (V, R) fp32, W frozen: dza (which may be written over za) and dB come instead of dW. In
// bf16 all is summed in fp32 and rounded once.
#include <algorithm>
#include <cmath>

#include "kernels/cross_entropy.h"
#include "kernels/target_loss.h"
#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/ops/row_moves.h"
#include "worker/program/op_table.h"

namespace snug::execute {
namespace {

using program::kHeadChunkRows;

// Trained tokens [first, first + rows) of the micro-batch.
struct Chunk {
  int64_t first, rows;
};

// Which rows of the batch the chunk's are.
const int64_t* IndexOf(const OpRun& run, const Chunk& chunk) {
  return run.batch->trained_rows + chunk.first;
}

float Softcap(const OpRun& run) { return static_cast<float>(run.op->attributes.softcap); }
float Smoothing(const OpRun& run) { return static_cast<float>(run.op->attributes.smoothing); }

// The chunk's weighted losses, and what else is seen of its tokens; `logits` become their gradients
// when these are wanted.
void CrossEntropy(const OpRun& run, const Chunk& chunk, const View& logits, bool gradient) {
  const Batch& batch = *run.batch;
  const bool mixed = batch.second_labels != nullptr;
  const int32_t* second = mixed ? batch.second_labels + chunk.first : nullptr;
  Check("CrossEntropy",
        kernels::CrossEntropy({.logits = logits.data,
                               .dlogits = gradient ? logits.data : nullptr,
                               .labels = batch.labels + chunk.first,
                               .second_labels = second,
                               .shares = mixed ? batch.shares + chunk.first : nullptr,
                               .weights = batch.weights + chunk.first,
                               .row_loss = batch.row_loss + chunk.first,
                               .row_entropy = batch.row_entropy + chunk.first,
                               .row_correct = batch.row_correct + chunk.first,
                               .N = chunk.rows,
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
void TargetLoss(const OpRun& run, const Chunk& chunk, const View& logits, bool gradient) {
  const Batch& batch = *run.batch;
  const bool binary = run.op->attributes.loss == program::Loss::kBinary;
  Check("TargetLoss", kernels::TargetLoss({.logits = logits.data,
                                           .dlogits = gradient ? logits.data : nullptr,
                                           .targets = batch.targets + chunk.first * logits.width,
                                           .weights = batch.weights + chunk.first,
                                           .row_loss = batch.row_loss + chunk.first,
                                           .row_entropy = batch.row_entropy + chunk.first,
                                           .row_correct = batch.row_correct + chunk.first,
                                           .N = chunk.rows,
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
void KeepLogits(const OpRun& run, const Chunk& chunk, const View& logits) {
  if (run.batch->row_logits == nullptr) return;
  float* const to = run.batch->row_logits + chunk.first * logits.width;
  Cast(run, logits, View{to, chunk.rows, logits.width, program::DType::kF32});
}

void Losses(const OpRun& run, const Chunk& chunk, const View& logits, bool gradient) {
  if (run.op->attributes.loss == program::Loss::kCrossEntropy)
    return CrossEntropy(run, chunk, logits, gradient);
  TargetLoss(run, chunk, logits, gradient);
}

// The last parameter, where there is one.
size_t BiasIndex(const OpRun& run) { return run.op->attributes.rank > 0 ? 2 : 1; }

// `za`: of the same rows, or absent.
void Logits(const OpRun& run, const View& rows, const View& za, const View& logits) {
  const Term base = {rows, Matrix(run.parameters[0].value).t(), run.op->attributes.table_scale};
  const bool bias = LayBias(run, BiasIndex(run), logits);
  if (!za) return SumOfProducts(run, logits, {base}, /*add=*/bias);
  const Term adapter = {za, Matrix(run.parameters[1].value).t(), run.op->attributes.scale};
  SumOfProducts(run, logits, {base, adapter}, /*add=*/bias);
}

// Whether what the gradient of parameter i holds when the chunk comes is a part of it.
bool AddsAt(const OpRun& run, const Chunk& chunk, size_t i) {
  return chunk.first > 0 || run.adds_to_parameter(i);
}

// dza = scale dlogits B, dB (+)= scale dlogits^T za, in fp32: by parts of the logits where these
// are not.
void AdapterGradients(const OpRun& run, const Chunk& chunk, const View& za, const View& dlogits,
                      const View& dza) {
  const double scale = run.op->attributes.scale;
  const Matrix all = dlogits, b = run.parameters[1].value, db = run.parameters[1].gradient;
  const auto add = [&](const Part& part, const Matrix& d) {
    SumProduct(run, dza.Rows(part.row, part.rows), {d, b.Rows(part.column, part.columns), scale},
               part.column > 0);
    SumProduct(run, db.Rows(part.column, part.columns),
               {d.t(), za.Rows(part.row, part.rows), scale}, part.row > 0 || AddsAt(run, chunk, 1));
  };
  if (dlogits.dtype == program::DType::kF32) return add({0, 0, all.rows, all.columns}, all);
  ForEachPart(run, all.rows, all.columns, [&](const Part& part, const View& piece) {
    Cast(run, part.Of(all), piece);
    add(part, piece);
  });
}

// The rows between the trained ones.
void ZeroUntrained(const OpRun& run, const View& dz) {
  const Batch& batch = *run.batch;
  int64_t next = 0;
  for (int64_t i = 0; i <= batch.trained; ++i) {
    const int64_t row = i < batch.trained ? batch.host_trained_rows[i] : batch.tokens;
    if (row > next) run.Zero(dz.Rows(next, row - next));
    next = row + 1;
  }
}

// A chunk's rows of za and, where gradients are wanted, of dza.
class ChunkOfAdapter {
 public:
  ChunkOfAdapter(const OpRun& run, int64_t most, bool gradient)
      : run_(run),
        za_(run, run.in[1] ? most : 0, run.in[1].width, program::DType::kF32),
        dza_(run, run.in[1] && gradient ? most : 0, run.in[1].width, program::DType::kF32) {}

  // Absent: there is no adapter.
  View Za(const Chunk& chunk) const {
    if (!run_.in[1]) return {};
    if (run_.op->attributes.selected) return run_.in[1].Rows(chunk.first, chunk.rows);
    const View za = za_.First(chunk.rows);
    Gather(run_, run_.in[1], IndexOf(run_, chunk), za);
    return za;
  }
  void Backward(const Chunk& chunk, const View& za, const View& dlogits) const {
    const View dza = dza_.First(chunk.rows);
    AdapterGradients(run_, chunk, za, dlogits, dza);
    if (run_.op->attributes.selected)
      return run_.Copy(run_.d_in[1].Rows(chunk.first, chunk.rows).data, dza.data, dza.bytes());
    Scatter(run_, dza, IndexOf(run_, chunk), run_.d_in[1]);
  }

 private:
  const OpRun& run_;
  const Scratch za_, dza_;
};

// A chunk's rows of z, and their way back into dz.
class ChunkOfRows {
 public:
  ChunkOfRows(const OpRun& run, int64_t most)
      : run_(run),
        selected_(run.op->attributes.selected),
        gathered_(run, selected_ ? 0 : most, run.in[0].width, run.in[0].dtype) {}

  View Rows(const Chunk& chunk) const {
    if (selected_) return run_.in[0].Rows(chunk.first, chunk.rows);
    const View rows = gathered_.First(chunk.rows);
    Gather(run_, run_.in[0], IndexOf(run_, chunk), rows);
    return rows;
  }
  // `rows`: those of the chunk, which nobody reads any more.
  void Backward(const Chunk& chunk, const View& rows, const View& dlogits) const {
    const View dz = selected_ ? run_.d_in[0].Rows(chunk.first, chunk.rows) : rows;
    const double scale = run_.op->attributes.table_scale;
    Product(run_, dz, {dlogits, run_.parameters[0].value, scale}, /*add=*/false);
    if (!selected_) Scatter(run_, rows, IndexOf(run_, chunk), run_.d_in[0]);
  }

 private:
  const OpRun& run_;
  const bool selected_;
  const Scratch gathered_;
};

void Run(const OpRun& run, bool gradient) {
  const View &z = run.in[0], &weight = run.parameters[0].value;
  const int64_t most = std::min(kHeadChunkRows, z.rows);
  const ChunkOfRows of_z(run, most);
  const Scratch logit_rows(run, most, weight.rows, z.dtype);
  const ChunkOfAdapter adapter(run, most, gradient);
  for (size_t i = 0; gradient && run.batch->trained == 0 && i < run.parameters.size(); ++i)
    run.BeginGradient(i);
  for (int64_t first = 0; first < run.batch->trained; first += most) {
    const Chunk chunk{first, std::min(most, run.batch->trained - first)};
    const View rows = of_z.Rows(chunk), logits = logit_rows.First(chunk.rows);
    const View za = adapter.Za(chunk);
    Logits(run, rows, za, logits);
    if (!gradient) KeepLogits(run, chunk, logits);
    Losses(run, chunk, logits, gradient);
    if (!gradient) continue;
    AddBiasGradient(run, BiasIndex(run), logits, /*add=*/chunk.first > 0);
    if (za) adapter.Backward(chunk, za, logits);
    if (run.parameters[0].gradient) {
      const double scale = run.op->attributes.table_scale;
      Product(run, run.parameters[0].gradient, {Matrix(logits).t(), rows, scale},
              AddsAt(run, chunk, 0));
    }
    if (run.d_in[0]) of_z.Backward(chunk, rows, logits);
  }
  if (run.op->attributes.selected) return;
  for (const View& d_in : run.d_in) {
    if (gradient && d_in) ZeroUntrained(run, d_in);
  }
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
  Run(run, /*gradient=*/false);
}

void HeadLossBackward(const OpRun& run) { Run(run, /*gradient=*/true); }

}  // namespace snug::execute

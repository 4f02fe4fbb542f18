// The output projection and the loss: logits = z W^T, loss = scale * sum of weight * cross-entropy.
// The trained rows are gathered kHeadChunkRows at a time, so that the logits of all rows never
// exist; rows of weight 0 cost nothing. With gradients, in the same pass: dz of the chunk, which
// may be written over z (untrained rows become 0), and dW added up in fp32.
// With an adapter, logits = z W^T + scale za B^T; za (N, R) and B (V, R) fp32, W frozen: dza (which
// may be written over za) and dB come instead of dW. In bf16 all is summed in fp32 and rounded
// once.
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "kernels/cross_entropy.h"
#include "kernels/rows.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"
#include "worker/execute/tensor_view.h"
#include "worker/program/op_table.h"

namespace snug::execute {
namespace {

using program::kHeadChunkRows;

// The next trained rows of the micro-batch.
struct Chunk {
  int64_t rows = 0;
  std::array<int64_t, kHeadChunkRows> index;
  std::array<int32_t, kHeadChunkRows> labels;
  std::array<float, kHeadChunkRows> weights;
};

// Fills `chunk` from row `next` on; returns where to go on.
int64_t NextChunk(const Batch& batch, int64_t next, Chunk& chunk) {
  chunk.rows = 0;
  for (; next < batch.tokens && chunk.rows < kHeadChunkRows; ++next) {
    if (batch.weights[next] == 0.0f) continue;
    const auto at = static_cast<size_t>(chunk.rows++);
    chunk.index[at] = next;
    chunk.labels[at] = batch.labels[next];
    chunk.weights[at] = batch.weights[next];
  }
  return next;
}

void Gather(const View& z, const Chunk& chunk, const View& rows) {
  Check("GatherRows", kernels::GatherRows({.x = z.data,
                                           .index = chunk.index.data(),
                                           .y = rows.data,
                                           .N = rows.rows,
                                           .C = z.width,
                                           .x_rows = z.rows,
                                           .x_stride = z.width,
                                           .y_stride = z.width,
                                           .dtype = KernelType(z),
                                           .index_type = kernels::IndexType::kI64},
                                          nullptr));
}

void Scatter(const View& rows, const Chunk& chunk, const View& dz) {
  Check("ScatterRows", kernels::ScatterRows({.x = rows.data,
                                             .index = chunk.index.data(),
                                             .y = dz.data,
                                             .N = rows.rows,
                                             .C = dz.width,
                                             .y_rows = dz.rows,
                                             .x_stride = dz.width,
                                             .y_stride = dz.width,
                                             .dtype = KernelType(dz),
                                             .index_type = kernels::IndexType::kI64},
                                            nullptr));
}

float Softcap(const OpRun& run) { return static_cast<float>(run.op->attributes.softcap); }

// The chunk's weighted losses, added up, with what else is seen of its tokens; `logits` become
// their gradients when these are wanted.
double CrossEntropy(const OpRun& run, const Chunk& chunk, const View& logits, bool gradient) {
  std::array<double, kHeadChunkRows> row_loss, row_entropy;
  std::array<int32_t, kHeadChunkRows> row_correct;
  double sum = 0.0;
  Check("CrossEntropy", kernels::CrossEntropy({.logits = logits.data,
                                               .dlogits = gradient ? logits.data : nullptr,
                                               .labels = chunk.labels.data(),
                                               .weights = chunk.weights.data(),
                                               .row_loss = row_loss.data(),
                                               .loss_sum = &sum,
                                               .row_entropy = row_entropy.data(),
                                               .row_correct = row_correct.data(),
                                               .N = chunk.rows,
                                               .V = logits.width,
                                               .logits_stride = logits.width,
                                               .dlogits_stride = logits.width,
                                               .dtype = KernelType(logits),
                                               .label_type = kernels::IndexType::kI32,
                                               .scale = static_cast<float>(run.scalars.loss_scale),
                                               .softcap = Softcap(run)},
                                              nullptr));
  for (int64_t row = 0; row < chunk.rows; ++row) {
    run.token_sums->entropy += row_entropy[static_cast<size_t>(row)];
    run.token_sums->correct += row_correct[static_cast<size_t>(row)];
  }
  run.token_sums->trained += chunk.rows;
  return sum * run.scalars.loss_scale;
}

// `za`: of the same rows, or absent.
void Logits(const OpRun& run, const View& rows, const View& za, const View& logits) {
  const Term base = {Matrix(rows), Matrix(run.parameters[0].value).t()};
  if (!za) return SumOfProducts(logits, {base}, /*add=*/false);
  const Term adapter = {Matrix(za), Matrix(run.parameters[1].value).t(), run.op->attributes.scale};
  SumOfProducts(logits, {base, adapter}, /*add=*/false);
}

// dza = scale dlogits B, dB += scale dlogits^T za, in fp32: by parts of the logits where these are
// not.
void AdapterGradients(const OpRun& run, const View& za, const View& dlogits, const View& dza) {
  const double scale = run.op->attributes.scale;
  const at::Tensor all = Matrix(dlogits), b = Matrix(run.parameters[1].value);
  const at::Tensor db = Matrix(run.parameters[1].gradient);
  const auto add = [&](const Part& part, const at::Tensor& d) {
    const auto rows = [&part](const View& view) { return Matrix(view.Rows(part.row, part.rows)); };
    SumProduct(rows(dza), d, b.narrow(0, part.column, part.columns), part.column > 0, scale);
    SumProduct(db.narrow(0, part.column, part.columns), d.t(), rows(za), /*add=*/true, scale);
  };
  if (dlogits.dtype == program::DType::kF32) return add({0, 0, all.size(0), all.size(1)}, all);
  ForEachPart(all.size(0), all.size(1), [&](const Part& part, const View& piece) {
    CastPart(part.Of(all), Matrix(piece));
    add(part, Matrix(piece));
  });
}

void ZeroUntrained(const Batch& batch, const View& dz) {
  const auto bytes = static_cast<size_t>(dz.width * program::SizeOf(dz.dtype));
  for (int64_t row = 0; row < batch.tokens; ++row) {
    if (batch.weights[row] == 0.0f) std::memset(dz.Rows(row, 1).data, 0, bytes);
  }
}

// A chunk's rows of za and, where gradients are wanted, of dza.
class ChunkOfAdapter {
 public:
  ChunkOfAdapter(const OpRun& run, int64_t most, bool gradient) : run_(run) {
    if (!run.in[1]) return;
    za_ = Scratch({most, run.in[1].width}, program::DType::kF32);
    if (gradient) dza_ = Scratch({most, run.in[1].width}, program::DType::kF32);
  }

  // Absent: there is no adapter.
  View Za(const Chunk& chunk) const {
    if (!run_.in[1]) return {};
    const View za = First(za_, chunk.rows);
    Gather(run_.in[1], chunk, za);
    return za;
  }
  void Backward(const Chunk& chunk, const View& za, const View& dlogits) const {
    const View dza = First(dza_, chunk.rows);
    AdapterGradients(run_, za, dlogits, dza);
    Scatter(dza, chunk, run_.d_in[1]);
  }

 private:
  static View First(const at::Tensor& buffer, int64_t rows) {
    return {buffer.data_ptr(), rows, buffer.size(1), program::DType::kF32};
  }

  const OpRun& run_;
  at::Tensor za_, dza_;
};

void Run(const OpRun& run, bool gradient) {
  const View &z = run.in[0], &weight = run.parameters[0].value;
  const int64_t most = std::min(kHeadChunkRows, z.rows);
  const at::Tensor gathered = Scratch({most, z.width}, z.dtype);
  const at::Tensor logit_rows = Scratch({most, weight.rows}, z.dtype);
  const ChunkOfAdapter adapter(run, most, gradient);
  Chunk chunk;
  for (int64_t next = NextChunk(*run.batch, 0, chunk); chunk.rows > 0;
       next = NextChunk(*run.batch, next, chunk)) {
    const View rows{gathered.data_ptr(), chunk.rows, z.width, z.dtype};
    const View logits{logit_rows.data_ptr(), chunk.rows, weight.rows, z.dtype};
    const View za = adapter.Za(chunk);
    Gather(z, chunk, rows);
    Logits(run, rows, za, logits);
    *run.loss += CrossEntropy(run, chunk, logits, gradient);
    if (!gradient) continue;
    if (za) adapter.Backward(chunk, za, logits);
    if (run.parameters[0].gradient) {
      Product(run.parameters[0].gradient, Matrix(logits).t(), Matrix(rows), /*add=*/true);
    }
    if (!run.d_in[0]) continue;
    Product(rows, Matrix(logits), Matrix(weight), /*add=*/false);
    Scatter(rows, chunk, run.d_in[0]);
  }
  for (const View& d_in : run.d_in) {
    if (gradient && d_in) ZeroUntrained(*run.batch, d_in);
  }
}

// What the model expects behind the last row.
void NextLogits(const OpRun& run) {
  const View &z = run.in[0], &weight = run.parameters[0].value;
  const View last = z.Rows(z.rows - 1, 1);
  const View za = run.in[1] ? run.in[1].Rows(z.rows - 1, 1) : View{};
  const at::Tensor scratch = Scratch({1, weight.rows}, z.dtype);
  const View logits{scratch.data_ptr(), 1, weight.rows, z.dtype};
  Logits(run, last, za, logits);
  float* out = run.batch->next_logits;
  Cast(logits, View{out, 1, weight.rows, program::DType::kF32});
  const auto softcap = static_cast<float>(run.op->attributes.softcap);
  if (softcap == 0.0f) return;
  std::transform(out, out + weight.rows, out,
                 [softcap](float x) { return softcap * std::tanh(x / softcap); });
}

}  // namespace

void HeadLossForward(const OpRun& run) {
  if (run.batch->next_logits != nullptr) return NextLogits(run);
  Run(run, /*gradient=*/false);
}

void HeadLossBackward(const OpRun& run) { Run(run, /*gradient=*/true); }

}  // namespace snug::execute

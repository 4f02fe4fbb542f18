// x = p W^T + b of tokens that stand for a patch; the first tokens of an image stand for none, and
// x[t] is the row of t there. p (N, C*P*P) is the batch's and 0 where there is no patch; W
// (D, C*P*P), b (D), the rows (D) each, x (N, D). All images have as many tokens.
// Backward: dW (+)= dx^T p, db (+)= the sum of dx over patches, a row's gradient its sum over
// images.
#include "worker/execute/ops/bias.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/products.h"

namespace snug::execute {
namespace {

constexpr size_t kWeight = 0, kBias = 1, kFirstRow = 2;

// The rows of an op's parameters, in their order, are those of the image's first tokens.
int64_t SpecialTokens(const OpRun& run) {
  return static_cast<int64_t>(run.op->parameters.size() - kFirstRow);
}

int64_t TokensOfImage(const OpRun& run) { return run.batch->tokens / run.batch->documents; }

View PatchesOf(const OpRun& run, int64_t rows) {
  const View& weight = run.parameters[kWeight].value;
  return {const_cast<void*>(run.batch->patches), rows, weight.width, weight.dtype};
}

// Token `t` of every image becomes the row of parameter `index`.
void LayRow(const OpRun& run, size_t index, int64_t t) {
  const View& x = run.out[0];
  Check("BiasForward", kernels::BiasForward({.b = run.parameters[index].value.data,
                                             .y = x.Rows(t, 1).data,
                                             .N = run.batch->documents,
                                             .C = x.width,
                                             .y_stride = TokensOfImage(run) * x.width,
                                             .dtype = KernelType(x)},
                                            run.stream()));
}

// Adds `count` rows of dx, `apart` rows from one another, to the gradient of parameter `index`.
void AddRows(const OpRun& run, size_t index, const View& dx, int64_t count, int64_t apart) {
  const StreamScratch sums(run, kernels::ColumnSumsWorkspace(count, dx.width));
  Check("BiasBackward", kernels::BiasBackward({.dy = dx.data,
                                               .db = run.parameters[index].gradient.as<float>(),
                                               .N = count,
                                               .C = dx.width,
                                               .dy_stride = apart * dx.width,
                                               .dtype = KernelType(dx),
                                               .accumulate = true,
                                               .workspace = sums.data()},
                                              run.stream()));
}

}  // namespace

void PatchEmbeddingForward(const OpRun& run) {
  const View& x = run.out[0];
  const int64_t special = SpecialTokens(run);
  Check("BiasForward", kernels::BiasForward({.b = run.parameters[kBias].value.data,
                                             .y = x.data,
                                             .N = x.rows,
                                             .C = x.width,
                                             .y_stride = x.width,
                                             .dtype = KernelType(x)},
                                            run.stream()));
  for (int64_t t = 0; t < special; ++t) LayRow(run, kFirstRow + static_cast<size_t>(t), t);
  Product(run, x, {PatchesOf(run, x.rows), Matrix(run.parameters[kWeight].value).t()},
          /*add=*/true);
}

void PatchEmbeddingBackward(const OpRun& run) {
  const View& dx = run.d_out[0];
  const int64_t special = SpecialTokens(run), tokens = TokensOfImage(run);
  if (const View& dw = run.parameters[kWeight].gradient)
    Product(run, dw, {Matrix(dx).t(), PatchesOf(run, dx.rows)}, run.adds_to_parameter(kWeight));
  run.BeginGradients(kBias);
  for (int64_t i = 0; run.parameters[kBias].gradient && i < run.batch->documents; ++i)
    AddRows(run, kBias, dx.Rows(i * tokens + special, tokens - special), tokens - special, 1);
  for (int64_t t = 0; t < special; ++t) {
    const size_t index = kFirstRow + static_cast<size_t>(t);
    if (run.parameters[index].gradient)
      AddRows(run, index, dx.Rows(t, dx.rows - t), run.batch->documents, tokens);
  }
}

}  // namespace snug::execute

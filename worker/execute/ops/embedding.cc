// x[i] = scale E[ids[i]], of tokens, positions or token types; E (V, C), x (N, C). Backward:
// dE[ids[i]] (+)= scale dx[i], in the order of the rows.
//
// With NEFTune (Jain et al. 2023) noise from [-m, m] is added to x in training, m = alpha /
// sqrt(T C). T is the length of the row's document, as the paper has it; transformers takes the
// length that its batch is padded to, so that there the noise of a document depends on its
// neighbours.
#include "kernels/embedding.h"

#include <cmath>

#include "kernels/uniform_noise.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/scratch.h"

namespace snug::execute {
namespace {

const int32_t* IdsOf(const OpRun& run) {
  switch (run.op->attributes.ids) {
    case program::Ids::kTokens:
      return run.batch->ids;
    case program::Ids::kPositions:
      return run.batch->positions;
    case program::Ids::kSource:
      return run.batch->source_ids;
    case program::Ids::kTokenTypes:
      break;
  }
  return run.batch->token_types;
}

float ScaleOf(const OpRun& run) { return static_cast<float>(run.op->attributes.scale); }

void AddNoise(const OpRun& run) {
  const View& x = run.out[0];
  const Batch& batch = *run.batch;
  const kernels::RandomSite site = RandomSiteOf(run);
  for (int64_t d = 0; d < batch.documents; ++d) {
    const int64_t first = batch.offsets[d], tokens = batch.offsets[d + 1] - first;
    const double elements = static_cast<double>(tokens) * static_cast<double>(x.width);
    const double magnitude = run.scalars.neftune_alpha / std::sqrt(elements);
    Check("AddUniformNoise", kernels::AddUniformNoise({.x = x.Rows(first, tokens).data,
                                                       .N = tokens,
                                                       .C = x.width,
                                                       .x_stride = x.width,
                                                       .first_row = first,
                                                       .dtype = KernelType(x),
                                                       .magnitude = static_cast<float>(magnitude),
                                                       .site = site},
                                                      run.stream()));
  }
}

}  // namespace

void EmbeddingForward(const OpRun& run) {
  const View &table = run.parameters[0].value, &x = run.out[0];
  Check("EmbeddingForward", kernels::EmbeddingForward({.ids = IdsOf(run),
                                                       .W = table.data,
                                                       .y = x.data,
                                                       .N = x.rows,
                                                       .C = x.width,
                                                       .V = table.elements() / x.width,
                                                       .W_stride = x.width,
                                                       .y_stride = x.width,
                                                       .dtype = KernelType(x),
                                                       .scale = ScaleOf(run)},
                                                      run.stream()));
  const bool of_tokens = run.op->attributes.ids == program::Ids::kTokens;
  if (of_tokens && run.scalars.neftune_alpha > 0.0) AddNoise(run);
}

void EmbeddingBackward(const OpRun& run) {
  const View &dx = run.d_out[0], &gradient = run.parameters[0].gradient;
  run.BeginGradient(0);
  const StreamScratch ranks(run, kernels::EmbeddingWorkspace(dx.rows));
  Check("EmbeddingBackward", kernels::EmbeddingBackward({.ids = IdsOf(run),
                                                         .dy = dx.data,
                                                         .dW = gradient.as<float>(),
                                                         .N = dx.rows,
                                                         .C = dx.width,
                                                         .V = gradient.elements() / dx.width,
                                                         .dy_stride = dx.width,
                                                         .dW_stride = dx.width,
                                                         .dtype = KernelType(dx),
                                                         .scale = ScaleOf(run),
                                                         .workspace = ranks.data()},
                                                        run.stream()));
}

}  // namespace snug::execute

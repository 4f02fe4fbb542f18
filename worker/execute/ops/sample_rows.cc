// A sample of a value's rows (sample.h), drawn by their norms alone: a gradient is estimated
// without bias whatever the scores are. As many rows as the form has are kept.
#include "kernels/row_norms.h"
#include "kernels/rows.h"
#include "kernels/sampling.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/sample.h"
#include "worker/execute/scratch.h"

namespace snug::execute {
namespace {

using kernels::SamplingKind;

void Draw(const OpRun& run, const View& x, const Sample& sample) {
  const Scratch norms(run, x.rows, 1, program::DType::kF32);
  Check("RowNorms", kernels::RowNorms({.x = x.data,
                                       .norms = norms.view().as<float>(),
                                       .N = x.rows,
                                       .C = x.width,
                                       .x_stride = x.width,
                                       .dtype = KernelType(x)},
                                      run.stream()));
  const bool wta = run.op->attributes.with_replacement;
  const SamplingKind kind = wta ? SamplingKind::kWinnerTakeAll : SamplingKind::kSystematic;
  const Scratch workspace(run, kernels::SampleRowsWorkspace(x.rows, kind));
  Check("SampleRows", kernels::SampleRows({.norms = norms.view().as<float>(),
                                           .index = sample.index,
                                           .weights = sample.weights,
                                           .T = x.rows,
                                           .k = sample.rows.rows,
                                           .kind = kind,
                                           .site = StashSiteOf(run),
                                           .workspace = workspace.data()},
                                          run.stream()));
}

}  // namespace

void SampleRowsForward(const OpRun& run) {
  const View& x = run.in[0];
  const Sample sample = SampleIn(run.out[0], x.width);
  Draw(run, x, sample);
  Check("GatherRows", kernels::GatherRows({.x = x.data,
                                           .index = sample.index,
                                           .y = sample.rows.data,
                                           .N = sample.rows.rows,
                                           .C = x.width,
                                           .x_rows = x.rows,
                                           .x_stride = x.width,
                                           .y_stride = x.width,
                                           .dtype = KernelType(x),
                                           .index_type = kernels::IndexType::kI32},
                                          run.stream()));
}

}  // namespace snug::execute

// Sampling of the rows of a weight gradient.
#include "kernels/sampling.h"

#include "kernels/row_norms.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::SamplingKind;

Case RowNorms(Operands& o) {
  const at::Tensor x = o.Random(), norms = o.Empty({o.N}, at::kFloat);
  return {.bytes = o.bytes() + 4 * o.N,
          .own = Call(kernels::RowNorms, {.x = x.data_ptr(),
                                          .norms = Floats(norms),
                                          .N = o.N,
                                          .C = o.C,
                                          .x_stride = o.C,
                                          .dtype = o.dtype}),
          .torch = [=] { at::linalg_vector_norm(x, 2, {1}, false, at::kFloat); }};
}

// A third of a step's rows. LibTorch's side of the draws with replacement: the largest, sampling of
// as many, and their weights. It has no systematic sample.
Case SampleRows(Operands& o, SamplingKind kind) {
  const int64_t T = 16 * o.N, k = kernels::SampleBudget(T, 0.3);
  const at::Tensor norms = o.Keep(at::rand({T}, o.options(at::kFloat)));
  const at::Tensor index = o.Empty({k}, at::kInt), weights = o.Empty({k}, at::kFloat);
  Case work = {.bytes = 4 * T + 8 * k,
               .own = Call(kernels::SampleRows,
                           {.norms = Floats(norms),
                            .index = Ints(index),
                            .weights = Floats(weights),
                            .T = T,
                            .k = k,
                            .kind = kind,
                            .site = {.seed = 7},
                            .workspace = o.Workspace(kernels::SampleRowsWorkspace(T, kind))}),
               .torch = nullptr};
  if (kind == SamplingKind::kWinnerTakeAll) {
    work.torch = [=] {
      const at::Tensor share = norms / norms.sum();
      std::get<0>(at::sort(share, -1, true)).cumsum(0);
      at::reciprocal(share.index_select(0, at::multinomial(share, k, true)));
    };
  }
  return work;
}

Case GatherScaledRows(Operands& o) {
  const at::Tensor x = o.Random(), weights = o.Keep(at::rand({o.N}, o.options(at::kFloat)));
  const at::Tensor order = o.Keep((at::arange(o.N, o.options(at::kLong)) * 7919).remainder(o.N));
  const at::Tensor index = o.Keep(order.to(at::kInt));
  const at::Tensor column = o.Keep(weights.to(o.type()).unsqueeze(1));
  at::Tensor y = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::GatherScaledRows, {.x = x.data_ptr(),
                                                  .index = Ints(index),
                                                  .weights = Floats(weights),
                                                  .y = y.data_ptr(),
                                                  .N = o.N,
                                                  .C = o.C,
                                                  .x_rows = o.N,
                                                  .x_stride = o.C,
                                                  .y_stride = o.C,
                                                  .dtype = o.dtype}),
          .torch = [=]() mutable {
            at::index_select_out(y, x, 0, order);
            y.mul_(column);
          }};
}

}  // namespace

std::vector<Row> SamplingRows() {
  return {
      {"RowNorms", RowNorms},
      {"SampleRows, systematic",
       [](Operands& o) { return SampleRows(o, SamplingKind::kSystematic); }},
      {"SampleRows, winner takes all",
       [](Operands& o) { return SampleRows(o, SamplingKind::kWinnerTakeAll); }},
      {"GatherScaledRows", GatherScaledRows},
  };
}

}  // namespace snug::bench

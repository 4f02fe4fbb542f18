// Rows of tokens: embeddings, moving rows, rotary positions, biases, noise.
#include "kernels/bias.h"
#include "kernels/columns.h"
#include "kernels/embedding.h"
#include "kernels/mean_rows.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/uniform_noise.h"
#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::DType;

constexpr int64_t kHeadWidth = 128;

// All rows, in the order of their numbers times an odd one.
at::Tensor Order(Operands& o, at::ScalarType type) {
  return o.Keep((at::arange(o.N, o.options(at::kLong)) * 7919).remainder(o.N).to(type));
}

Case RopeTable(Operands& o) {
  const int64_t half = kHeadWidth / 2;
  const at::Tensor positions = o.Keep(at::arange(o.N, o.options(at::kInt)));
  const at::Tensor inv_freq = o.Keep(at::rand({half}, o.options(at::kFloat)));
  const at::Tensor table = o.Empty({2, o.N, half}, at::kFloat);
  return {.bytes = 8 * o.N * half,
          .own = Call(kernels::RopeTable, {.positions = positions.data_ptr(),
                                           .inv_freq = Floats(inv_freq),
                                           .cos = Floats(table[0]),
                                           .sin = Floats(table[1]),
                                           .N = o.N,
                                           .D = kHeadWidth}),
          .torch = [=] {
            const at::Tensor angles = at::outer(positions.to(at::kFloat), inv_freq);
            at::Tensor cos = table[0], sin = table[1];
            at::cos_out(cos, angles);
            at::sin_out(sin, angles);
          }};
}

Case Rope(Operands& o, kernels::Error (*op)(const kernels::RopeParams&, kernels::Stream)) {
  const int64_t heads = o.C / kHeadWidth, half = kHeadWidth / 2;
  const at::Tensor x = o.Random(), y = o.Empty();
  const at::Tensor cos = o.Keep(at::randn({o.N, half}, o.options(at::kFloat)));
  const at::Tensor sin = o.Keep(at::randn({o.N, half}, o.options(at::kFloat)));
  const auto twice = [&](const at::Tensor& t) {
    return at::cat({t, t}, 1).unsqueeze(1).to(x.scalar_type());
  };
  return {.bytes = 2 * o.bytes() + 4 * o.N * kHeadWidth,
          .own = Call(op, {.x = x.data_ptr(),
                           .y = y.data_ptr(),
                           .cos = Floats(cos),
                           .sin = Floats(sin),
                           .N = o.N,
                           .heads = heads,
                           .D = kHeadWidth,
                           .x_stride = o.C,
                           .y_stride = o.C,
                           .dtype = o.dtype}),
          .torch = [=, wide_cos = twice(cos), wide_sin = twice(sin)] {
            const at::Tensor q = x.view({-1, heads, kHeadWidth});
            const at::Tensor turned = at::cat({-q.narrow(2, half, half), q.narrow(2, 0, half)}, 2);
            q* wide_cos + turned* wide_sin;
          }};
}

Case Gather(Operands& o) {
  const at::Tensor x = o.Random(), index = Order(o, at::kLong);
  at::Tensor y = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::GatherRows, {.x = x.data_ptr(),
                                            .index = index.data_ptr(),
                                            .y = y.data_ptr(),
                                            .N = o.N,
                                            .C = o.C,
                                            .x_rows = o.N,
                                            .x_stride = o.C,
                                            .y_stride = o.C,
                                            .dtype = o.dtype,
                                            .index_type = kernels::IndexType::kI64}),
          .torch = [=]() mutable { at::index_select_out(y, x, 0, index); }};
}

Case Scatter(Operands& o) {
  const at::Tensor x = o.Random(), index = o.Keep(at::arange(o.N, o.options(at::kLong)));
  at::Tensor y = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::ScatterRows, {.x = x.data_ptr(),
                                             .index = index.data_ptr(),
                                             .y = y.data_ptr(),
                                             .N = o.N,
                                             .C = o.C,
                                             .y_rows = o.N,
                                             .x_stride = o.C,
                                             .y_stride = o.C,
                                             .dtype = o.dtype,
                                             .index_type = kernels::IndexType::kI64}),
          .torch = [=]() mutable { y.index_copy_(0, index, x); }};
}

// Rows of one mean: what an image of 8 x 8 windows has left of its patches.
constexpr int64_t kMeanOf = 64;

Case MeanForward(Operands& o) {
  const int64_t means = o.N / kMeanOf;
  const at::Tensor x = o.Random({means * kMeanOf, o.C});
  at::Tensor y = o.Empty({means, o.C}, o.type());
  return {.bytes = (kMeanOf + 1) * means * o.C * kernels::SizeOf(o.dtype),
          .own = Call(kernels::MeanRowsForward, {.x = x.data_ptr(),
                                                 .y = y.data_ptr(),
                                                 .N = means,
                                                 .G = kMeanOf,
                                                 .C = o.C,
                                                 .x_stride = o.C,
                                                 .y_stride = o.C,
                                                 .dtype = o.dtype}),
          .torch = [=]() mutable {
            at::mean_out(y, x.view({means, kMeanOf, o.C}), {1});
          }};
}

Case MeanBackward(Operands& o) {
  const int64_t means = o.N / kMeanOf;
  const at::Tensor dy = o.Random({means, o.C});
  const at::Tensor dx = o.Empty({means * kMeanOf, o.C}, o.type());
  return {
      .bytes = (kMeanOf + 1) * means * o.C * kernels::SizeOf(o.dtype),
      .own = Call(kernels::MeanRowsBackward, {.dy = dy.data_ptr(),
                                              .dx = dx.data_ptr(),
                                              .N = means,
                                              .G = kMeanOf,
                                              .C = o.C,
                                              .dy_stride = o.C,
                                              .dx_stride = o.C,
                                              .dtype = o.dtype}),
      .torch = [=] {
        dx.view({means, kMeanOf, o.C}).copy_((dy / kMeanOf).unsqueeze(1).expand({-1, kMeanOf, -1}));
      }};
}

// From fp32 to bf16, or back.
Case Cast(Operands& o) {
  const DType other = o.dtype == DType::kF32 ? DType::kBF16 : DType::kF32;
  const at::Tensor x = o.Random();
  const at::Tensor y = o.Empty({o.N, o.C}, o.dtype == DType::kF32 ? at::kBFloat16 : at::kFloat);
  return {.bytes = o.bytes() + o.elements() * kernels::SizeOf(other),
          .own = Call(kernels::CastRows, {.x = x.data_ptr(),
                                          .y = y.data_ptr(),
                                          .N = o.N,
                                          .C = o.C,
                                          .x_stride = o.C,
                                          .y_stride = o.C,
                                          .x_dtype = o.dtype,
                                          .y_dtype = other}),
          .torch = [=] { y.copy_(x); }};
}

Case Add(Operands& o) {
  const at::Tensor a = o.Random(), b = o.Random();
  at::Tensor y = o.Empty();
  return {.bytes = 3 * o.bytes(),
          .own = Call(kernels::AddRows, {.a = a.data_ptr(),
                                         .b = b.data_ptr(),
                                         .y = y.data_ptr(),
                                         .N = o.N,
                                         .C = o.C,
                                         .a_stride = o.C,
                                         .b_stride = o.C,
                                         .y_stride = o.C,
                                         .a_dtype = o.dtype,
                                         .b_dtype = o.dtype,
                                         .y_dtype = o.dtype,
                                         .scale = 0.5f}),
          .torch = [=]() mutable { at::add_out(y, a, b, 0.5); }};
}

Case EmbeddingForward(Operands& o) {
  const at::Tensor W = o.Random(), ids = Order(o, at::kInt), long_ids = o.Keep(ids.to(at::kLong));
  at::Tensor y = o.Empty();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::EmbeddingForward, {.ids = Ints(ids),
                                                  .W = W.data_ptr(),
                                                  .y = y.data_ptr(),
                                                  .N = o.N,
                                                  .C = o.C,
                                                  .V = o.N,
                                                  .W_stride = o.C,
                                                  .y_stride = o.C,
                                                  .dtype = o.dtype}),
          .torch = [=]() mutable {
            at::index_select_out(y, W, 0, long_ids);  // What at::embedding calls.
          }};
}

// LibTorch's gradient is a new tensor of the table's type, to be added; ours is added to fp32.
Case EmbeddingBackward(Operands& o) {
  const at::Tensor dy = o.Random(), ids = Order(o, at::kInt), long_ids = o.Keep(ids.to(at::kLong));
  const at::Tensor dW = o.Keep(at::zeros({o.N, o.C}, o.options(at::kFloat)));
  return {
      .bytes = o.bytes() + 8 * o.elements(),
      .own = Call(kernels::EmbeddingBackward,
                  {.ids = Ints(ids),
                   .dy = dy.data_ptr(),
                   .dW = Floats(dW),
                   .N = o.N,
                   .C = o.C,
                   .V = o.N,
                   .dy_stride = o.C,
                   .dW_stride = o.C,
                   .dtype = o.dtype,
                   .workspace = o.Workspace(kernels::EmbeddingWorkspace(o.N))}),
      .torch = [=, V = o.N] { dW.add_(at::embedding_dense_backward(dy, long_ids, V, -1, false)); }};
}

// Of fp32 in any case. `add`: into the matrix, else out of it.
Case Columns(Operands& o, bool add) {
  const at::Tensor ids = Order(o, at::kInt), long_ids = o.Keep(ids.to(at::kLong));
  const at::Tensor x = o.Keep(at::rand({o.C, o.N}, o.options(at::kFloat)));
  at::Tensor y = o.Keep(at::rand({o.N, o.C}, o.options(at::kFloat)));
  const kernels::ColumnsParams p = {.x = Floats(x),
                                    .ids = Ints(ids),
                                    .y = Floats(y),
                                    .N = o.N,
                                    .R = o.C,
                                    .V = o.N,
                                    .x_stride = o.N,
                                    .y_stride = o.C};
  return {.bytes = (add ? 12 : 8) * o.elements(),
          .own = add ? Call(kernels::AddColumns, p) : Call(kernels::GatherColumns, p),
          .torch = [=]() mutable {
            if (add) {
              x.index_add_(1, long_ids, y.t());
            } else {
              y.copy_(x.index_select(1, long_ids).t());
            }
          }};
}

Case UniformNoise(Operands& o) {
  const at::Tensor x = o.Random();
  return {.bytes = 2 * o.bytes(),
          .own = Call(kernels::AddUniformNoise, {.x = x.data_ptr(),
                                                 .N = o.N,
                                                 .C = o.C,
                                                 .x_stride = o.C,
                                                 .dtype = o.dtype,
                                                 .magnitude = 1e-6f,
                                                 .site = {.seed = 7}}),
          .torch = [=] { x.add_(at::empty_like(x).uniform_(-1.0, 1.0), 1e-6); }};
}

Case BiasForward(Operands& o) {
  const at::Tensor b = o.Random({o.C}), y = o.Empty();
  return {.bytes = o.bytes(),
          .own = Call(kernels::BiasForward, {.b = b.data_ptr(),
                                             .y = y.data_ptr(),
                                             .N = o.N,
                                             .C = o.C,
                                             .y_stride = o.C,
                                             .dtype = o.dtype}),
          .torch = [=] { y.copy_(b.expand_as(y)); }};
}

Case BiasBackward(Operands& o) {
  const at::Tensor dy = o.Random(), db = o.Empty({o.C}, at::kFloat);
  return {.bytes = o.bytes() + 4 * o.C,
          .own = Call(kernels::BiasBackward,
                      {.dy = dy.data_ptr(),
                       .db = Floats(db),
                       .N = o.N,
                       .C = o.C,
                       .dy_stride = o.C,
                       .dtype = o.dtype,
                       .workspace = o.Workspace(kernels::ColumnSumsWorkspace(o.N, o.C))}),
          .torch = [=] { dy.sum({0}, false, at::kFloat); }};
}

}  // namespace

std::vector<Row> TokenRows() {
  return {
      {"EmbeddingForward", EmbeddingForward},
      {"EmbeddingBackward", EmbeddingBackward},
      {"GatherColumns", [](Operands& o) { return Columns(o, false); }},
      {"AddColumns", [](Operands& o) { return Columns(o, true); }},
      {"AddUniformNoise", UniformNoise},
      {"RopeTable", RopeTable},
      {"RopeForward", [](Operands& o) { return Rope(o, kernels::RopeForward); }},
      {"RopeBackward", [](Operands& o) { return Rope(o, kernels::RopeBackward); }},
      {"GatherRows", Gather},
      {"ScatterRows", Scatter},
      {"MeanRowsForward", MeanForward},
      {"MeanRowsBackward", MeanBackward},
      {"CastRows", Cast},
      {"AddRows", Add},
      {"BiasForward", BiasForward},
      {"BiasBackward", BiasBackward},
  };
}

}  // namespace snug::bench

// Attention of documents of 1,024 tokens, heads of 128, against LibTorch's flash attention; bytes
// are the operands' once. attention_benchmark has other lengths, windows and rates.
#include "kernels/attention.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <algorithm>

#include "tests/bench/kernels/rows.h"

namespace snug::bench {
namespace {

using kernels::AttentionShape, kernels::AttentionSizes;

constexpr int64_t kHeadWidth = 128, kDocument = 1024;

// Offsets are the caller's to keep.
AttentionShape ShapeOf(Operands& o) {
  const int64_t documents = (o.N + kDocument - 1) / kDocument;
  const at::Tensor offsets = o.Keep(at::arange(documents + 1, at::kLong) * kDocument);
  offsets.clamp_max_(o.N);
  return {.heads = o.C / kHeadWidth,
          .kv_heads = o.C / kHeadWidth,
          .D = kHeadWidth,
          .documents = documents,
          .query_offsets = offsets.data_ptr<int64_t>(),
          .device_query_offsets = o.Keep(offsets.to(o.options(at::kLong))).data_ptr<int64_t>(),
          .scale = 0.088f,
          .dtype = o.dtype};
}

// The same operand as LibTorch wants it: (documents, heads, tokens, width).
at::Tensor Heads(const Operands& o, const at::Tensor& x) {
  return x.view({-1, std::min(o.N, kDocument), o.C / kHeadWidth, kHeadWidth}).transpose(1, 2);
}

Case Forward(Operands& o) {
  const at::Tensor q = o.Random(), k = o.Random(), v = o.Random(), out = o.Empty();
  const AttentionShape shape = ShapeOf(o);
  const at::Tensor lse = o.Empty({o.N, shape.heads}, at::kFloat);
  const int64_t bytes = kernels::AttentionForwardBytes(SizesOf(shape, at::get_num_threads()));
  return {
      .bytes = 4 * o.bytes() + 4 * o.N * shape.heads,
      .own = Call(kernels::AttentionForward, {.shape = shape,
                                              .q = q.data_ptr(),
                                              .k = k.data_ptr(),
                                              .v = v.data_ptr(),
                                              .o = out.data_ptr(),
                                              .lse = Floats(lse),
                                              .q_stride = o.C,
                                              .k_stride = o.C,
                                              .v_stride = o.C,
                                              .o_stride = o.C,
                                              .lse_stride = shape.heads,
                                              .workspace = static_cast<float*>(o.Workspace(bytes)),
                                              .workspace_bytes = bytes}),
      .torch = [q = Heads(o, q), k = Heads(o, k), v = Heads(o, v)] {
        at::scaled_dot_product_attention(q, k, v, std::nullopt, 0.0, true, 0.088);
      }};
}

Case Backward(Operands& o) {
  const at::Tensor x = o.Random({5, o.N, o.C}), d = o.Empty({3, o.N, o.C}, o.type());
  const AttentionShape shape = ShapeOf(o);
  const at::Tensor lse = o.Ones({o.N, shape.heads}, at::kFloat);
  AttentionSizes sizes = SizesOf(shape, at::get_num_threads());
  const int64_t bytes = std::max(kernels::AttentionBackwardBytes(sizes),
                                 kernels::AttentionBackwardStreamBytes(sizes));
  Case work = {
      .bytes = 8 * o.bytes() + 4 * o.N * shape.heads,
      .own = Call(kernels::AttentionBackward, {.shape = shape,
                                               .dO = x[0].data_ptr(),
                                               .q = x[1].data_ptr(),
                                               .k = x[2].data_ptr(),
                                               .v = x[3].data_ptr(),
                                               .o = x[4].data_ptr(),
                                               .lse = Floats(lse),
                                               .dq = d[0].data_ptr(),
                                               .dk = d[1].data_ptr(),
                                               .dv = d[2].data_ptr(),
                                               .dO_stride = o.C,
                                               .q_stride = o.C,
                                               .k_stride = o.C,
                                               .v_stride = o.C,
                                               .o_stride = o.C,
                                               .lse_stride = shape.heads,
                                               .dq_stride = o.C,
                                               .dk_stride = o.C,
                                               .dv_stride = o.C,
                                               .workspace = static_cast<float*>(o.Workspace(bytes)),
                                               .workspace_bytes = bytes}),
      .torch = nullptr};
  if (x.is_cuda()) return work;  // LibTorch's gradient there has other arguments.
  const at::Tensor torch_lse =
      o.Keep(lse.view({-1, std::min(o.N, kDocument), shape.heads}).transpose(1, 2).contiguous());
  work.torch = [dO = Heads(o, x[0]), q = Heads(o, x[1]), k = Heads(o, x[2]), v = Heads(o, x[3]),
                out = Heads(o, x[4]), torch_lse] {
    at::_scaled_dot_product_flash_attention_for_cpu_backward(dO, q, k, v, out, torch_lse, 0.0, true,
                                                             std::nullopt, 0.088);
  };
  return work;
}

}  // namespace

std::vector<Row> AttentionRows() {
  return {{"AttentionForward", Forward}, {"AttentionBackward", Backward}};
}

}  // namespace snug::bench

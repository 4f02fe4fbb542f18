// Causal attention within each document: ATen's flash attention for the CPU, called once per
// document on views of the rows.
//   q (N, H*D), k and v (N, Hkv*D), o (N, H*D), lse (N, H) fp32.
// Grouped queries without copies: the batch of a call is the key heads; their queries are its
// heads, k and v are expanded over them. A document's part of lse lies as ATen's kernel wrote it,
// (Hkv, T, H/Hkv), within that document's T*H numbers; nobody else reads it. Neither T x T scores
// nor a mask ever exist. Gradients of a document are complete before they are written over its q, k
// and v.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <algorithm>

#include "worker/execute/ops/ops.h"
#include "worker/execute/tensor_view.h"
#include "worker/program/workspace.h"

namespace snug::execute {
namespace {

// The rows of one document.
struct Document {
  const OpRun& run;
  int64_t first;
  int64_t tokens;  // T

  int64_t kv_heads() const { return run.op->attributes.kv_heads; }
  int64_t group() const { return run.op->attributes.heads / kv_heads(); }
  int64_t head_width() const { return run.op->attributes.head_width; }

  at::Tensor Rows(const View& view, at::IntArrayRef shape) const {
    return at::from_blob(view.Rows(first, tokens).data, shape,
                         at::TensorOptions().dtype(ScalarTypeOf(view.dtype)));
  }
  // (Hkv, group, T, D)
  at::Tensor Queries(const View& view) const {
    return Rows(view, {tokens, kv_heads(), group(), head_width()}).permute({1, 2, 0, 3});
  }
  // (Hkv, T, D)
  at::Tensor Keys(const View& view) const {
    return Rows(view, {tokens, kv_heads(), head_width()}).permute({1, 0, 2});
  }
  // (Hkv, group, T, D), the same memory for all of a group.
  at::Tensor ExpandedKeys(const View& view) const {
    return Keys(view).unsqueeze(1).expand({kv_heads(), group(), tokens, head_width()});
  }
  // (Hkv, group, T)
  at::Tensor LogSumExp(const View& view) const {
    return Rows(view, {kv_heads(), tokens, group()}).transpose(1, 2);
  }
};

template <typename Body>
void ForEachDocument(const OpRun& run, const Body& body) {
  const Batch& batch = *run.batch;
  for (int64_t d = 0; d < batch.documents; ++d) {
    body(Document{run, batch.offsets[d], batch.offsets[d + 1] - batch.offsets[d]});
  }
}

// The sum over the query heads of a group, in place of the first.
at::Tensor SumOfGroup(const at::Tensor& gradient) {
  at::Tensor sum = gradient.select(1, 0);
  for (int64_t i = 1; i < gradient.size(1); ++i) sum.add_(gradient.select(1, i));
  return sum;
}

void BackwardOfHeads(const Document& document, int64_t first, int64_t heads) {
  const OpRun& run = document.run;
  const auto fp32 = [&](const at::Tensor& all) {
    return all.narrow(0, first, heads).to(at::kFloat);
  };
  const auto expanded = [&](const at::Tensor& keys) {
    return keys.unsqueeze(1).expand({heads, document.group(), document.tokens, keys.size(-1)});
  };
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      fp32(document.Queries(run.d_out[0])), fp32(document.Queries(run.in[0])),
      expanded(fp32(document.Keys(run.in[1]))), expanded(fp32(document.Keys(run.in[2]))),
      fp32(document.Queries(run.out[0])), fp32(document.LogSumExp(run.out[1])), /*dropout_p=*/0.0,
      /*is_causal=*/true, /*attn_mask=*/std::nullopt, run.op->attributes.scale);
  const auto part = [&](const at::Tensor& all) { return all.narrow(0, first, heads); };
  if (run.d_in[0]) part(document.Queries(run.d_in[0])).copy_(dq);
  if (run.d_in[1]) part(document.Keys(run.d_in[1])).copy_(SumOfGroup(dk));
  if (run.d_in[2]) part(document.Keys(run.d_in[2])).copy_(SumOfGroup(dv));
}

}  // namespace

void AttentionForward(const OpRun& run) {
  ForEachDocument(run, [&](const Document& document) {
    const auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        document.Queries(run.in[0]), document.ExpandedKeys(run.in[1]),
        document.ExpandedKeys(run.in[2]), /*dropout_p=*/0.0, /*is_causal=*/true,
        /*attn_mask=*/std::nullopt, run.op->attributes.scale);
    document.Queries(run.out[0]).copy_(o);
    document.LogSumExp(run.out[1]).copy_(lse);
  });
}

// In fp32 and a few heads at a time: it needs no more room than that takes, and ATen's bf16
// backward takes an amount that depends on how its threads meet.
void AttentionBackward(const OpRun& run) {
  const program::OpAttributes& attributes = run.op->attributes;
  const int64_t step = program::AttentionKeyHeadsAtOnce(attributes, at::get_num_threads());
  ForEachDocument(run, [&](const Document& document) {
    for (int64_t first = 0; first < attributes.kv_heads; first += step) {
      BackwardOfHeads(document, first, std::min(step, attributes.kv_heads - first));
    }
  });
}

}  // namespace snug::execute

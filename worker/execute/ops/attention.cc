// Causal attention within each document, by our own kernel (kernels/attention.h).
//   q (N, H*D), k and v (N, Hkv*D), o (N, H*D), lse (N, H) fp32.
// With a cache of keys (Batch::kv_cache) forward puts the batch's k and v behind what is there and
// attends over all of it. Backward has no cache. Gradients may lie over q, k and v.
#include "kernels/attention.h"

#include <ATen/Parallel.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/tensor_view.h"

namespace snug::execute {
namespace {

kernels::AttentionShape ShapeOf(const OpRun& run) {
  const program::OpAttributes& a = run.op->attributes;
  const bool drops = run.scalars.dropout && a.dropout > 0.0;
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .D = a.head_width,
          .documents = run.batch->documents,
          .query_offsets = run.batch->offsets,
          .window = a.window,
          .scale = static_cast<float>(a.scale),
          .softcap = static_cast<float>(a.softcap),
          .dropout = drops ? a.dropout : 0.0,
          .site = drops ? RandomSiteOf(run) : kernels::RandomSite{},
          .dtype = KernelType(run.in[1])};
}

at::Tensor Workspace(int64_t bytes) {
  return Scratch({bytes / static_cast<int64_t>(sizeof(float))}, program::DType::kF32);
}

// Where the keys and values of a run are: in the run itself, or in the cache.
class KeysAndValues {
 public:
  // Puts the run's own into the cache, if there is one.
  explicit KeysAndValues(const OpRun& run) : k_(run.in[1].data), v_(run.in[2].data) {
    const KvCache* cache = run.batch->kv_cache;
    if (cache == nullptr) return;
    k_ = cache->keys[run.block];
    v_ = cache->values[run.block];
    for (int64_t d = 0; d < run.batch->documents; ++d) {
      const int64_t first = run.batch->offsets[d], tokens = run.batch->offsets[d + 1] - first;
      begins_.push_back(d * cache->capacity);
      counts_.push_back(cache->rows[d] + tokens);
      if (counts_.back() > cache->capacity) Refuse(counts_.back(), cache->capacity);
      const int64_t to = begins_.back() + cache->rows[d];
      Append(run.in[1].Rows(first, tokens), k_, to);
      Append(run.in[2].Rows(first, tokens), v_, to);
    }
  }
  void Describe(kernels::AttentionShape& shape) const {
    if (begins_.empty()) return;
    shape.key_begins = begins_.data();
    shape.key_counts = counts_.data();
  }
  const void* k() const { return k_; }
  const void* v() const { return v_; }

 private:
  static void Append(const View& rows, void* cache, int64_t to) {
    const int64_t row_bytes = rows.width * program::SizeOf(rows.dtype);
    std::memcpy(static_cast<char*>(cache) + to * row_bytes, rows.data,
                static_cast<size_t>(rows.bytes()));
  }
  [[noreturn]] static void Refuse(int64_t rows, int64_t capacity) {
    throw std::runtime_error("attention: a cache of " + std::to_string(capacity) +
                             " keys per document has no room for " + std::to_string(rows));
  }

  void* k_;
  void* v_;
  std::vector<int64_t> begins_, counts_;
};

}  // namespace

void AttentionForward(const OpRun& run) {
  const KeysAndValues keys(run);
  kernels::AttentionShape shape = ShapeOf(run);
  keys.Describe(shape);
  const int64_t bytes =
      kernels::AttentionForwardBytes(kernels::SizesOf(shape, at::get_num_threads()));
  const at::Tensor workspace = Workspace(bytes);
  Check("AttentionForward", kernels::AttentionForward({.shape = shape,
                                                       .q = run.in[0].data,
                                                       .k = keys.k(),
                                                       .v = keys.v(),
                                                       .o = run.out[0].data,
                                                       .lse = run.out[1].as<float>(),
                                                       .q_stride = run.in[0].width,
                                                       .k_stride = run.in[1].width,
                                                       .v_stride = run.in[2].width,
                                                       .o_stride = run.out[0].width,
                                                       .lse_stride = run.out[1].width,
                                                       .workspace = workspace.data_ptr<float>(),
                                                       .workspace_bytes = bytes},
                                                      nullptr));
}

void AttentionBackward(const OpRun& run) {
  const kernels::AttentionShape shape = ShapeOf(run);
  const int64_t bytes =
      kernels::AttentionBackwardBytes(kernels::SizesOf(shape, at::get_num_threads()));
  const at::Tensor workspace = Workspace(bytes);
  Check("AttentionBackward", kernels::AttentionBackward({.shape = shape,
                                                         .dO = run.d_out[0].data,
                                                         .q = run.in[0].data,
                                                         .k = run.in[1].data,
                                                         .v = run.in[2].data,
                                                         .o = run.out[0].data,
                                                         .lse = run.out[1].as<float>(),
                                                         .dq = run.d_in[0].data,
                                                         .dk = run.d_in[1].data,
                                                         .dv = run.d_in[2].data,
                                                         .dO_stride = run.d_out[0].width,
                                                         .q_stride = run.in[0].width,
                                                         .k_stride = run.in[1].width,
                                                         .v_stride = run.in[2].width,
                                                         .o_stride = run.out[0].width,
                                                         .lse_stride = run.out[1].width,
                                                         .dq_stride = run.d_in[0].width,
                                                         .dk_stride = run.d_in[1].width,
                                                         .dv_stride = run.d_in[2].width,
                                                         .workspace = workspace.data_ptr<float>(),
                                                         .workspace_bytes = bytes},
                                                        nullptr));
}

}  // namespace snug::execute

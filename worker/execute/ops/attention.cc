// Attention within each document, by our own kernel (kernels/attention.h).
//   q (N, H*D), k and v (N, Hkv*D), o (N, H*D), lse (N, H) fp32.
// Queries and keys have the same rows or, of a decoder that reads an encoder, rows of their own,
// document by document. Its parameter, where there is one, has biases by distance
// (worker/execute/ops/distance_biases.h), or by places of windows, of which each part is then a
// document of its own (worker/execute/ops/window_documents.h).
//
// With a cache of its keys (Batch::kv_cache, source_cache) forward puts the batch's k and v behind
// what is there and attends over all of it; an encoder, which sees its source at once, has none.
// Backward has no cache. Gradients may lie over q, k and v.
#include "kernels/attention.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "worker/execute/device.h"
#include "worker/execute/ops/distance_biases.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/ops/ops.h"
#include "worker/execute/ops/window_documents.h"
#include "worker/execute/scratch.h"

namespace snug::execute {
namespace {

kernels::AttentionShape ShapeOf(const OpRun& run) {
  const program::OpAttributes& a = run.op->attributes;
  const bool drops = run.scalars.dropout && a.dropout > 0.0;
  return {.heads = a.heads,
          .kv_heads = a.kv_heads,
          .D = a.head_width,
          .documents = run.batch->documents,
          .query_offsets = run.batch->OffsetsOf(a.query_rows).host,
          .device_query_offsets = run.batch->OffsetsOf(a.query_rows).device,
          .window = a.window,
          .causal = a.causal,
          .scale = static_cast<float>(a.scale),
          .softcap = static_cast<float>(a.softcap),
          .dropout = drops ? a.dropout : 0.0,
          .site = drops ? RandomSiteOf(run) : kernels::RandomSite{},
          .dtype = KernelType(run.in[1])};
}

int64_t ForwardBytes(const OpRun& run, const kernels::AttentionShape& shape) {
  if (run.stream() != nullptr) return 0;
  return kernels::AttentionForwardBytes(kernels::SizesOf(shape, run.device->machine().threads));
}

int64_t BackwardBytes(const OpRun& run, const kernels::AttentionShape& shape, bool of_biases) {
  kernels::AttentionSizes sizes = kernels::SizesOf(shape, run.device->machine().threads);
  if (of_biases) sizes.bias_entries = shape.bias.entries;
  if (run.stream() != nullptr) return kernels::AttentionBackwardStreamBytes(sizes);
  return kernels::AttentionBackwardBytes(sizes);
}

// Where each document's keys begin in the cache, and how many it has.
struct CachedKeys {
  std::vector<int64_t> begins, counts;
};

[[noreturn]] void Refuse(int64_t rows, int64_t capacity) {
  throw std::runtime_error("attention: a cache of " + std::to_string(capacity) +
                           " keys per document has no room for " + std::to_string(rows));
}

void Append(const OpRun& run, const View& rows, void* cache, int64_t to) {
  const int64_t row_bytes = rows.width * program::SizeOf(rows.dtype);
  run.Copy(static_cast<char*>(cache) + to * row_bytes, rows.data, rows.bytes());
}

// Of the keys that the op's queries see; null: they see the batch's alone.
const KvCache* CacheOf(const OpRun& run) {
  const program::OpAttributes& a = run.op->attributes;
  if (a.query_rows == program::Rows::kSource) return nullptr;
  return a.key_rows == program::Rows::kSource ? run.batch->source_cache : run.batch->kv_cache;
}

// Puts the run's own keys and values into the cache, if there is one.
CachedKeys AppendKeys(const OpRun& run, const KvCache* cache) {
  CachedKeys keys;
  if (cache == nullptr) return keys;
  const int64_t* begins = run.batch->OffsetsOf(run.op->attributes.key_rows).host;
  for (int64_t d = 0; d < run.batch->documents; ++d) {
    const int64_t first = begins[d], tokens = begins[d + 1] - first;
    keys.begins.push_back(d * cache->capacity);
    keys.counts.push_back(cache->rows[d] + tokens);
    if (keys.counts.back() > cache->capacity) Refuse(keys.counts.back(), cache->capacity);
    const int64_t to = keys.begins.back() + cache->rows[d];
    Append(run, run.in[1].Rows(first, tokens), cache->keys[run.block], to);
    Append(run, run.in[2].Rows(first, tokens), cache->values[run.block], to);
  }
  return keys;
}

// Where keys have documents of their own, an encoder's: those of the batch's rows of that kind,
// which lie as they begin, and how many each has. On a stream both are the batch's arrays, which
// all blocks share.
class KeysOfTheirOwn {
 public:
  explicit KeysOfTheirOwn(const OpRun& run) : counts_(Counts(run)) {}
  void AddTo(const OpRun& run, kernels::AttentionShape& shape) const {
    if (counts_.empty()) return;
    const Batch::Offsets offsets = run.batch->OffsetsOf(run.op->attributes.key_rows);
    shape.key_begins = offsets.host;
    shape.device_key_begins = offsets.device;
    shape.key_counts = counts_.data();
    shape.device_key_counts = run.batch->device_source_counts;
  }

 private:
  static std::vector<int64_t> Counts(const OpRun& run) {
    const program::OpAttributes& a = run.op->attributes;
    std::vector<int64_t> counts;
    if (a.key_rows == a.query_rows || CacheOf(run) != nullptr) return counts;
    const int64_t* begins = run.batch->OffsetsOf(a.key_rows).host;
    for (int64_t d = 0; d < run.batch->documents; ++d) counts.push_back(begins[d + 1] - begins[d]);
    return counts;
  }
  const std::vector<int64_t> counts_;
};

}  // namespace

void AttentionForward(const OpRun& run) {
  const KvCache* cache = CacheOf(run);
  const CachedKeys keys = AppendKeys(run, cache);
  const KeysOfTheirOwn own_keys(run);
  const DistanceBiases biases(run);
  const WindowDocuments windows(run);
  kernels::AttentionShape shape = ShapeOf(run);
  own_keys.AddTo(run, shape);
  shape.bias = biases.bias();
  windows.AddTo(shape);
  if (cache != nullptr) {
    shape.key_begins = keys.begins.data();
    shape.key_counts = keys.counts.data();
    shape.device_key_begins = cache->device_begins;
    shape.device_key_counts = cache->device_counts;
  }
  const int64_t bytes = ForwardBytes(run, shape);
  const Scratch workspace(run, bytes);
  Check("AttentionForward", kernels::AttentionForward(
                                {.shape = shape,
                                 .q = run.in[0].data,
                                 .k = cache == nullptr ? run.in[1].data : cache->keys[run.block],
                                 .v = cache == nullptr ? run.in[2].data : cache->values[run.block],
                                 .o = run.out[0].data,
                                 .lse = run.out[1].as<float>(),
                                 .q_stride = run.in[0].width,
                                 .k_stride = run.in[1].width,
                                 .v_stride = run.in[2].width,
                                 .o_stride = run.out[0].width,
                                 .lse_stride = run.out[1].width,
                                 .workspace = static_cast<float*>(workspace.data()),
                                 .workspace_bytes = bytes},
                                run.stream()));
}

void AttentionBackward(const OpRun& run) {
  run.BeginGradient(0);
  const KeysOfTheirOwn own_keys(run);
  const DistanceBiases biases(run);
  const WindowDocuments windows(run);
  kernels::AttentionShape shape = ShapeOf(run);
  own_keys.AddTo(run, shape);
  shape.bias = biases.bias();
  windows.AddTo(shape);
  const Scratch d_table(run, biases.gradient_rows(), shape.heads, program::DType::kF32);
  const bool wants_distances = d_table.data() != nullptr;
  if (wants_distances) run.Zero(d_table.view());
  float* d_bias = wants_distances ? static_cast<float*>(d_table.data()) : windows.gradient();
  const int64_t bytes = BackwardBytes(run, shape, d_bias != nullptr);
  const Scratch workspace(run, bytes);
  Check("AttentionBackward",
        kernels::AttentionBackward({.shape = shape,
                                    .dO = run.d_out[0].data,
                                    .q = run.in[0].data,
                                    .k = run.in[1].data,
                                    .v = run.in[2].data,
                                    .o = run.out[0].data,
                                    .lse = run.out[1].as<float>(),
                                    .dq = run.d_in[0].data,
                                    .dk = run.d_in[1].data,
                                    .dv = run.d_in[2].data,
                                    .d_bias = d_bias,
                                    .dO_stride = run.d_out[0].width,
                                    .q_stride = run.in[0].width,
                                    .k_stride = run.in[1].width,
                                    .v_stride = run.in[2].width,
                                    .o_stride = run.out[0].width,
                                    .lse_stride = run.out[1].width,
                                    .dq_stride = run.d_in[0].width,
                                    .dk_stride = run.d_in[1].width,
                                    .dv_stride = run.d_in[2].width,
                                    .d_bias_stride = 1,
                                    .workspace = static_cast<float*>(workspace.data()),
                                    .workspace_bytes = bytes},
                                   run.stream()));
  if (wants_distances) biases.AddGradient(d_table.view());
}

}  // namespace snug::execute

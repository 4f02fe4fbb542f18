// Checks of attention's arguments. The first error found is the one returned.
#ifndef KERNELS_CPU_ATTENTION_CHECK_H_
#define KERNELS_CPU_ATTENTION_CHECK_H_

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/cpu/attention_blocks.h"
#include "kernels/cpu/check.h"

namespace snug::kernels::cpu {

class AttentionCheck {
 public:
  AttentionCheck(const AttentionShape& s, Stream stream) : s_(s), check_(0, 1) {
    const bool on_stream = stream != nullptr;
    check_.That(s.D >= 1 && (!on_stream || s.D <= kMaxStreamHeadWidth), ErrorCode::kBadShape, "D")
        .That(s.kv_heads >= 1, ErrorCode::kBadShape, "kv_heads")
        .That(s.kv_heads >= 1 && s.heads >= 1 && s.heads % s.kv_heads == 0, ErrorCode::kBadShape,
              "heads")
        .That(s.documents >= 0, ErrorCode::kBadShape, "documents")
        .That(s.documents == 0 || s.query_offsets != nullptr, ErrorCode::kNullPointer,
              "query_offsets")
        .That((s.key_begins == nullptr) == (s.key_counts == nullptr), ErrorCode::kNullPointer,
              "key_counts")
        .That(s.window >= 0, ErrorCode::kBadValue, "window")
        .That(s.causal || s.window == 0, ErrorCode::kBadValue, "window")
        .That(s.scale > 0.0f, ErrorCode::kBadValue, "scale")
        .That(s.softcap >= 0.0f, ErrorCode::kBadValue, "softcap")
        .That(s.dropout >= 0.0 && s.dropout < 1.0, ErrorCode::kBadValue, "dropout")
        .That(s.dropout == 0.0 || s.site.op < kMaxRandomOps, ErrorCode::kBadValue, "site.op")
        .Type(s.dtype, "dtype");
    if (s.bias.table != nullptr) {
      check_.That(s.bias.entries >= 1, ErrorCode::kBadShape, "bias.entries")
          .That(s.bias.origin >= 0 && s.bias.origin < s.bias.entries, ErrorCode::kBadIndex,
                "bias.origin")
          .That(s.bias.entry_stride >= 1, ErrorCode::kBadStride, "bias.entry_stride")
          .That(BiasFits(s.bias.stride), ErrorCode::kBadStride, "bias.stride")
          .That(s.bias.pitch >= 0, ErrorCode::kBadValue, "bias.pitch");
      if (check_.ok() && s.bias.pitch > 0) Grids(on_stream);
    }
    if (check_.ok()) Documents();
    if (on_stream && s.documents > 0) DeviceArrays();
  }

  AttentionCheck& Queries(const void* x, const char* name, int64_t stride,
                          const char* stride_name) {
    return Rows(x, name, stride >= s_.heads * s_.D, stride_name);
  }
  AttentionCheck& Keys(const void* x, const char* name, int64_t stride, const char* stride_name) {
    return Rows(x, name, stride >= s_.kv_heads * s_.D, stride_name);
  }
  // Of backward: no two documents have a key in common, and they come in order.
  AttentionCheck& KeysApart() {
    bool apart = true;
    for (int64_t d = 1; ok() && s_.key_begins != nullptr && d < s_.documents; ++d)
      apart = apart && s_.key_begins[d] >= s_.key_begins[d - 1] + s_.key_counts[d - 1];
    return That(apart, ErrorCode::kBadIndex, "key_begins");
  }
  AttentionCheck& LogSumExp(const float* lse, int64_t stride) {
    return Rows(lse, "lse", stride >= s_.heads, "lse_stride");
  }
  AttentionCheck& BiasGradient(int64_t stride) {
    check_.Pointer(s_.bias.table, "bias.table")
        .That(BiasFits(stride), ErrorCode::kBadStride, "d_bias_stride");
    return *this;
  }
  AttentionCheck& That(bool good, ErrorCode code, const char* parameter) {
    check_.That(good, code, parameter);
    return *this;
  }
  void Workspace(const void* workspace, int64_t threads) {
    check_.Pointer(workspace, "workspace")
        .That(threads >= 1, ErrorCode::kBadValue, "workspace_bytes");
  }

  bool ok() const { return check_.ok(); }
  Error error() const { return check_.error(); }
  int64_t rows() const { return s_.documents == 0 ? 0 : s_.query_offsets[s_.documents]; }

 private:
  // All places are seen, and each distance has an entry.
  void Grids(bool on_stream) {
    const AttentionBias& b = s_.bias;
    check_.That(!s_.causal && s_.key_begins == nullptr, ErrorCode::kBadValue, "bias.pitch")
        .That(s_.documents == 0 || b.widths != nullptr, ErrorCode::kNullPointer, "bias.widths")
        .That(s_.documents == 0 || !on_stream || b.device_widths != nullptr,
              ErrorCode::kNullPointer, "bias.device_widths");
    for (int64_t d = 0; check_.ok() && d < s_.documents; ++d) {
      const bool fits = b.widths[d] >= 1 && b.widths[d] <= b.pitch;
      if (!check_.That(fits, ErrorCode::kBadValue, "bias.widths").ok()) return;
      const int64_t last = s_.query_offsets[d + 1] - s_.query_offsets[d] - 1;
      const int64_t farthest = last / b.widths[d] * b.pitch + last % b.widths[d];
      check_.That(last < 0 || (farthest <= b.origin && b.origin + farthest < b.entries),
                  ErrorCode::kBadShape, "bias.entries");
    }
  }
  // A head's entries do not meet another's: either lie within the step of the other.
  bool BiasFits(int64_t stride) const {
    const AttentionBias& b = s_.bias;
    const bool by_head = stride > (b.entries - 1) * b.entry_stride;
    const bool by_entry = stride >= 1 && b.entry_stride > (s_.heads - 1) * stride;
    return by_head || by_entry || s_.heads == 1;
  }
  void DeviceArrays() {
    check_.Pointer(s_.device_query_offsets, "device_query_offsets")
        .That((s_.key_begins == nullptr) == (s_.device_key_begins == nullptr),
              ErrorCode::kNullPointer, "device_key_begins")
        .That((s_.key_counts == nullptr) == (s_.device_key_counts == nullptr),
              ErrorCode::kNullPointer, "device_key_counts");
    if (check_.ok()) {
      check_.That(SizesOf(s_, 1).longest_keys <= kMaxStreamKeys, ErrorCode::kBadShape,
                  s_.key_counts == nullptr ? "query_offsets" : "key_counts");
    }
  }
  // Positions of queries are not negative where they count.
  int64_t FewestKeys(int64_t queries) const {
    const bool placed = s_.causal || s_.bias.table != nullptr;
    return placed ? queries : std::min<int64_t>(queries, 1);
  }
  void Documents() {
    bool offsets = s_.documents == 0 || s_.query_offsets[0] == 0, keys = true;
    for (int64_t d = 0; d < s_.documents; ++d) {
      const int64_t queries = s_.query_offsets[d + 1] - s_.query_offsets[d];
      offsets = offsets && queries >= 0;
      if (s_.key_counts != nullptr)
        keys = keys && s_.key_counts[d] >= FewestKeys(queries) && s_.key_begins[d] >= 0;
    }
    check_.That(offsets, ErrorCode::kBadIndex, "query_offsets")
        .That(keys, ErrorCode::kBadIndex, "key_counts");
    if (!check_.ok() || s_.dropout == 0.0) return;
    constexpr int64_t kKeysPerBlock = 4;
    const int64_t blocks = RoundUp(SizesOf(s_, 1).longest_keys, 64) / kKeysPerBlock;
    check_.That(rows() * s_.heads * blocks <= static_cast<int64_t>(kMaxRandomBlocks),
                ErrorCode::kBadShape, "query_offsets");
  }
  AttentionCheck& Rows(const void* x, const char* name, bool stride_fits, const char* stride_name) {
    if (!check_.ok() || rows() == 0) return *this;
    check_.Pointer(x, name).That(stride_fits || rows() == 1, ErrorCode::kBadStride, stride_name);
    return *this;
  }

  const AttentionShape& s_;
  Check check_;
};

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_ATTENTION_CHECK_H_

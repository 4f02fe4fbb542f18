// How calls of ops that store, move and select are refused. A new op is one entry.
#include <cmath>

#include "kernels/codes.h"
#include "kernels/columns.h"
#include "kernels/frozen_linear.h"
#include "kernels/int8_weight.h"
#include "kernels/nf4.h"
#include "kernels/quantize.h"
#include "kernels/quantized_activation.h"
#include "kernels/quantized_norm.h"
#include "kernels/reversible.h"
#include "kernels/row_norms.h"
#include "kernels/rows.h"
#include "kernels/sampling.h"
#include "kernels/valid_tokens.h"
#include "tests/kernels/refusals_testing.h"

namespace snug::kernels {
namespace {

// With absmax in 8 bits.
void Nest(Nf4Weight& w) {
  w.codes = w.absmax = w.offset = floats;
  w.absmax_codes = reinterpret_cast<uint8_t*>(floats);
}

RefusedOp Frozen(const char* op) {
  return Refused<FrozenLinearParams>(op, {
    SNUG_SHAPE(M), SNUG_SHAPE(N), SNUG_SHAPE(K), SNUG_TYPE(dtype), SNUG_TYPE(W.kind), SNUG_NULL(in),
        SNUG_STRIDE(in_stride), SNUG_NULL(out), SNUG_STRIDE(out_stride), SNUG_NULL(W.int8.codes),
        SNUG_NULL(W.int8.absmax), SNUG_STRIDE(W.int8.codes_stride),
        SNUG_SAYS("null pointer: codes", p.W.kind = FrozenKind::kNf4),
        SNUG_SAYS("null pointer: absmax", p.W.kind = FrozenKind::kNf4; Nest(p.W.nf4);
                  p.W.nf4.absmax = nullptr),
        SNUG_SAYS("null pointer: offset", p.W.kind = FrozenKind::kNf4; Nest(p.W.nf4);
                  p.W.nf4.offset = nullptr),
        SNUG_NULL(workspace, Where::kCpu), SNUG_SHAPE(workspace_bytes, Where::kCpu)
  });
}

std::vector<RefusedOp> Weights() {
  return {
      Frozen("FrozenLinearForward"),
      Frozen("FrozenLinearBackward"),
      Refused<QuantizeInt8WeightParams>(
          "QuantizeInt8Weight",
          {SNUG_SHAPE(N), SNUG_SHAPE(K), SNUG_TYPE(dtype), SNUG_NULL(w), SNUG_STRIDE(w_stride),
           SNUG_NULL(to.codes), SNUG_STRIDE(to.codes_stride), SNUG_NULL(to.absmax)}),
      Refused<DequantizeInt8WeightParams>(
          "DequantizeInt8Weight",
          {SNUG_SHAPE(N), SNUG_SHAPE(K), SNUG_TYPE(dtype), SNUG_NULL(w), SNUG_STRIDE(w_stride),
           SNUG_NULL(from.codes), SNUG_STRIDE(from.codes_stride), SNUG_NULL(from.absmax)}),
      Refused<QuantizeNf4Params>("QuantizeNf4",
                                 {
                                   SNUG_SHAPE(N), SNUG_SHAPE(K), SNUG_TYPE(dtype), SNUG_NULL(w),
                                       SNUG_STRIDE(w_stride), SNUG_NULL(to.codes),
                                       SNUG_NULL(to.absmax),
                                       SNUG_SAYS("null pointer: offset", Nest(p.to);
                                                 p.to.offset = nullptr),
                                       SNUG_SAYS("null pointer: workspace", Nest(p.to)),
                                       SNUG_SAYS("bad value: workspace", Nest(p.to);
                                                 p.workspace = reinterpret_cast<char*>(zeros) + 4)
                                 }),
      Refused<DequantizeNf4Params>("DequantizeNf4",
                                   {
                                     SNUG_SHAPE(N), SNUG_SHAPE(K), SNUG_TYPE(dtype), SNUG_NULL(w),
                                         SNUG_STRIDE(w_stride), SNUG_NULL(from.codes),
                                         SNUG_NULL(from.absmax),
                                         SNUG_SAYS("null pointer: offset", Nest(p.from);
                                                   p.from.offset = nullptr)
                                   }),
      Refused<FixedAddParams>("FixedAdd",
                              {
                                SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(y_dtype),
                                    SNUG_VALUE(q, 31), SNUG_VALUE(q, -1), SNUG_STRIDE(v_stride),
                                    SNUG_STRIDE(f_stride), SNUG_STRIDE(v_out_stride),
                                    SNUG_STRIDE(y_stride),
                                    SNUG_SAYS("null pointer: v", p.v = nullptr; p.f = nullptr),
                                    SNUG_SAYS("null pointer: v_out", p.v_out = nullptr;
                                              p.y = nullptr)
                              }),
      Refused<FixedShiftAddParams>(
          "FixedShiftAdd",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_VALUE(q, 31), SNUG_VALUE(shift, 0),
           SNUG_VALUE(shift, kMaxShift + 1), SNUG_NULL(v), SNUG_STRIDE(v_stride), SNUG_NULL(f),
           SNUG_STRIDE(f_stride), SNUG_NULL(v_out), SNUG_STRIDE(v_out_stride), SNUG_NULL(side),
           SNUG_STRIDE(side_stride)}),
  };
}

// Of a tensor of codes, and of how they are rounded.
#define SNUG_CODES(q)                                                                      \
  SNUG_NULL(q.codes), SNUG_STRIDE(q.codes_stride), SNUG_NULL(q.ranges), SNUG_TYPE(q.bits), \
      SNUG_TYPE(q.kind), SNUG_VALUE(q.first_row, -1),                                      \
      SNUG_SAYS("bad shape: group_columns", p.q.kind = RangeKind::kGroups;                 \
                p.q.grouping.group_columns = 7),                                           \
      SNUG_SAYS("bad shape: row_groups", p.q.kind = RangeKind::kGroups;                    \
                p.q.grouping.row_groups = 0),                                              \
      SNUG_SAYS("bad shape: run_rows", p.q.kind = RangeKind::kGroups; p.q.grouping.run_rows = 0)
#define SNUG_DITHER(q)                                                   \
  SNUG_TYPE(dither.rounding), SNUG_VALUE(dither.site.op, kMaxRandomOps), \
      SNUG_SAYS("bad shape: N", p.q.first_row = INT64_MAX)

std::vector<RefusedOp> Stashes() {
  return {
      Refused<UpdateRangesParams>(
          "UpdateRanges",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(bits), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(ranges), SNUG_NULL(workspace), SNUG_VALUE(decay, 1.0f),
           SNUG_VALUE(decay, NAN), SNUG_SET("bad shape", grouping.run_rows, 0),
           SNUG_SET("bad shape", grouping.row_groups, 0),
           SNUG_SET("bad shape", grouping.group_columns, 7), SNUG_SHAPE(grouping.group_columns),
           SNUG_SAYS("null pointer: beta", p.alpha = floats),
           SNUG_SAYS("null pointer: updates", p.alpha = p.beta = floats)}),
      Refused<QuantizeParams>("Quantize",
                              {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(x),
                               SNUG_STRIDE(x_stride), SNUG_CODES(to), SNUG_DITHER(to)}),
      Refused<DequantizeParams>("Dequantize",
                                {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(y),
                                 SNUG_STRIDE(y_stride), SNUG_CODES(from)}),
      Refused<QuantizedActivationForwardParams>(
          "QuantizedActivationForward",
          {SNUG_SHAPE(activation.N), SNUG_SHAPE(activation.C), SNUG_TYPE(activation.dtype),
           SNUG_KIND(activation.activation), SNUG_NULL(activation.x),
           SNUG_STRIDE(activation.x_stride), SNUG_NULL(activation.y),
           SNUG_STRIDE(activation.y_stride), SNUG_CODES(x), SNUG_DITHER(x),
           SNUG_VALUE(activation.codes, reinterpret_cast<uint8_t*>(floats)),
           SNUG_VALUE(activation.mask, reinterpret_cast<uint8_t*>(floats))}),
      Refused<QuantizedActivationBackwardParams>(
          "QuantizedActivationBackward",
          {SNUG_SHAPE(activation.N), SNUG_SHAPE(activation.C), SNUG_TYPE(activation.dtype),
           SNUG_KIND(activation.activation), SNUG_NULL(activation.dy),
           SNUG_STRIDE(activation.dy_stride), SNUG_NULL(activation.dx),
           SNUG_STRIDE(activation.dx_stride), SNUG_VALUE(activation.x, floats), SNUG_CODES(x)}),
      Refused<QuantizedNormForwardParams>(
          "QuantizedNormForward",
          {SNUG_SHAPE(norm.N), SNUG_SHAPE(norm.C), SNUG_TYPE(norm.dtype),
           SNUG_TYPE(norm.gamma_dtype), SNUG_NULL(norm.x), SNUG_STRIDE(norm.x_stride),
           SNUG_STRIDE(norm.residual_stride), SNUG_NULL(norm.h), SNUG_STRIDE(norm.h_stride),
           SNUG_NULL(norm.z), SNUG_STRIDE(norm.z_stride), SNUG_NULL(norm.r), SNUG_NULL(norm.gamma),
           SNUG_VALUE(norm.eps, -1.0f), SNUG_KIND(norm.norm), SNUG_VALUE(norm.xhat, floats),
           SNUG_VALUE(norm.round_xhat, false), SNUG_CODES(xhat), SNUG_DITHER(xhat)}),
      Refused<QuantizedNormBackwardParams>(
          "QuantizedNormBackward",
          {SNUG_SHAPE(norm.N), SNUG_SHAPE(norm.C), SNUG_TYPE(norm.dtype), SNUG_NULL(norm.dxhat),
           SNUG_STRIDE(norm.dxhat_stride), SNUG_NULL(norm.r), SNUG_NULL(norm.dx),
           SNUG_STRIDE(norm.dx_stride), SNUG_KIND(norm.norm), SNUG_VALUE(norm.xhat, floats),
           SNUG_VALUE(norm.x, floats), SNUG_CODES(xhat)}),
      Refused<QuantizedNormSumsParams>(
          "QuantizedNormSums", {SNUG_SHAPE(affine.N), SNUG_SHAPE(affine.C), SNUG_TYPE(affine.dtype),
                                SNUG_NULL(affine.dz), SNUG_STRIDE(affine.dz_stride),
                                SNUG_VALUE(affine.xhat, floats), SNUG_VALUE(affine.dxhat, floats),
                                SNUG_NULL(affine.workspace, Where::kStream), SNUG_CODES(xhat)}),
      Refused<CodeBackwardParams>(
          "CodeBackward", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(dy),
                           SNUG_STRIDE(dy_stride), SNUG_VALUE(bits, 3), SNUG_NULL(codes),
                           SNUG_STRIDE(code_stride), SNUG_NULL(dx), SNUG_STRIDE(dx_stride)}),
  };
}

RefusedOp Columns(const char* op) {
  return Refused<ColumnsParams>(
      op, {SNUG_SHAPE(N), SNUG_SHAPE(R), SNUG_SHAPE(V), SNUG_NULL(ids), SNUG_IDS(ids), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(y), SNUG_STRIDE(y_stride)});
}

std::vector<RefusedOp> Rows() {
  return {
      Columns("GatherColumns"),
      Columns("AddColumns"),
      Refused<GatherRowsParams>(
          "GatherRows", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(x_rows), SNUG_TYPE(dtype),
                         SNUG_TYPE(index_type), SNUG_NULL(x), SNUG_STRIDE(x_stride),
                         SNUG_NULL(index), SNUG_IDS(index), SNUG_NULL(y), SNUG_STRIDE(y_stride)}),
      Refused<ScatterRowsParams>("ScatterRows",
                                 {SNUG_SAYS("bad value: zero_others", p.accumulate = true)}),
      Refused<ScatterRowsParams>(
          "ScatterRowsAccumulating",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(y_rows), SNUG_TYPE(dtype),
           SNUG_TYPE(index_type), SNUG_NULL(x), SNUG_STRIDE(x_stride), SNUG_NULL(index),
           SNUG_IDS(index), SNUG_SET("bad index", index, zeros, Where::kCpu), SNUG_NULL(y),
           SNUG_STRIDE(y_stride)}),
      Refused<CastRowsParams>(
          "CastRows", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(x_dtype), SNUG_TYPE(y_dtype),
                       SNUG_NULL(x), SNUG_STRIDE(x_stride), SNUG_NULL(y), SNUG_STRIDE(y_stride),
                       SNUG_SAYS("bad dtype: y_dtype", p.x = p.y)}),
      Refused<AddRowsParams>(
          "AddRows",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(a_dtype), SNUG_TYPE(b_dtype), SNUG_TYPE(y_dtype),
           SNUG_NULL(a), SNUG_STRIDE(a_stride), SNUG_NULL(b), SNUG_STRIDE(b_stride), SNUG_NULL(y),
           SNUG_STRIDE(y_stride), SNUG_SAYS("bad dtype: y_dtype", p.b = p.y)}),
      Refused<RowNormsParams>("RowNorms", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype),
                                           SNUG_NULL(x), SNUG_STRIDE(x_stride), SNUG_NULL(norms),
                                           SNUG_VALUE(scale, 0.0f), SNUG_VALUE(scale, NAN)}),
      Refused<SampleRowsParams>(
          "SampleRows",
          {SNUG_SHAPE(T), SNUG_SET("bad shape", T, kMaxSampledRows + 1), SNUG_SHAPE(k),
           SNUG_SET("bad shape", k, 0), SNUG_SET("bad shape", k, p.T + 1), SNUG_KIND(kind),
           SNUG_NULL(norms), SNUG_NULL(index), SNUG_NULL(weights), SNUG_VALUE(floor, 1.0f),
           SNUG_VALUE(floor, NAN), SNUG_VALUE(site.op, kMaxRandomOps), SNUG_NULL(workspace),
           SNUG_VALUE(workspace, static_cast<char*>(p.workspace) + 4)}),
      Refused<GatherScaledRowsParams>(
          "GatherScaledRows",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(x_rows), SNUG_TYPE(dtype), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(index), SNUG_IDS(index), SNUG_NULL(weights),
           SNUG_NULL(y), SNUG_STRIDE(y_stride)}),
      Refused<ValidTokensParams>(
          "ValidTokens",
          {SNUG_SHAPE(N), SNUG_SET("bad shape", N, int64_t{1} << 31), SNUG_TYPE(label_type),
           SNUG_NULL(labels), SNUG_NULL(index), SNUG_NULL(count)}),
  };
}

}  // namespace

std::vector<RefusedOp> RefusedStorageOps() {
  std::vector<RefusedOp> all;
  for (auto group : {Weights, Stashes, Rows}) {
    for (RefusedOp& op : group()) all.push_back(std::move(op));
  }
  return all;
}

}  // namespace snug::kernels

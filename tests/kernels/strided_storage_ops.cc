// Ops that store and move tensors and take strides: codes, stashes, frozen weights, streams, rows.
// Each is called with all operands that it may have. A new op is one entry.
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
#include "tests/kernels/strided_testing.h"

namespace snug::kernels {
namespace {

constexpr RandomSite kSite = {.seed = 7, .step = 3, .micro_batch = 1, .op = 9};

using O = Operands;

// Of two sums of columns.
void* Sums(O& o) { return o.Workspace(2 * ColumnSumsWorkspace(kStridedRows, o.C())); }

// No more than there are rows, and than lie in a row.
int64_t Few(const O& o) { return std::min(kStridedRows, o.C()); }

// Codes of blocks with their ranges, and those of int8 weights.
void Codes(O& o, Quantized& q) {
  o.Rows<uint8_t>(q.codes, q.codes_stride);
  o.Vector<float>(q.ranges, RangeBytes(q, kStridedRows, o.C()) / int64_t{sizeof(float)});
}
void Codes(O& o, Int8Weight& w) {
  o.Rows(w.codes, w.codes_stride);
  o.Vector(w.absmax, kStridedRows);
}
void Codes(O& o, Nf4Weight& w) {
  o.Vector<uint8_t>(w.codes, Nf4CodeBytes(kStridedRows * o.C()));
  o.Vector(w.absmax, Nf4Blocks(kStridedRows * o.C()));
}

// kStridedRows rows through a weight of few rows.
FrozenLinearParams Frozen(O& o) {
  FrozenLinearParams p = {.W = {.kind = FrozenKind::kInt8}, .M = kStridedRows, .dtype = o.dtype()};
  p.N = Few(o);
  p.K = o.C();
  Codes(o, p.W.int8);
  o.Rows(p.in, p.in_stride, p.out, p.out_stride);
  p.workspace_bytes = FrozenLinearWorkspace(1);
  p.workspace = o.Workspace(p.workspace_bytes);
  return p;
}

FixedShiftAddParams Shift(O& o) {
  auto p = o.Of<FixedShiftAddParams>();
  p.shift = static_cast<int>(Few(o));
  o.Rows(p.v, p.v_stride, p.f, p.f_stride, p.v_out, p.v_out_stride, p.side, p.side_stride);
  return p;
}

constexpr StridedOp kStorageOps[] = {
    {"CodeBackward",
     [](O& o) {
       auto p = o.Of<CodeBackwardParams>();
       std::copy_n(kReSilu2.slope, 4, p.slope);
       o.Rows(p.dy, p.dy_stride, p.codes, p.code_stride, p.dx, p.dx_stride);
       return o.Run(CodeBackward, p);
     }},
    {"GatherColumns",
     [](O& o) {
       ColumnsParams p = {.N = kStridedRows, .R = Few(o), .V = o.C()};
       const auto last = static_cast<int32_t>(o.C() - 1);
       o.Indices(p.ids, {last, 0, last / 2});
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(GatherColumns, p);
     }},
    {"AddColumns",
     [](O& o) {
       ColumnsParams p = {.N = kStridedRows, .R = Few(o), .V = o.C()};
       const auto last = static_cast<int32_t>(o.C() - 1);
       o.Indices(p.ids, {last, 0, last});
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(AddColumns, p);
     }},
    {"FrozenLinearForward", [](O& o) { return o.Run(FrozenLinearForward, Frozen(o)); }},
    {"FrozenLinearBackward", [](O& o) { return o.Run(FrozenLinearBackward, Frozen(o)); }},
    {"QuantizeInt8Weight",
     [](O& o) {
       auto p = o.Of<QuantizeInt8WeightParams>();
       p.K = o.C();
       o.Rows(p.w, p.w_stride);
       Codes(o, p.to);
       return o.Run(QuantizeInt8Weight, p);
     }},
    {"DequantizeInt8Weight",
     [](O& o) {
       auto p = o.Of<DequantizeInt8WeightParams>();
       p.K = o.C();
       Codes(o, p.from);
       o.Rows(p.w, p.w_stride);
       return o.Run(DequantizeInt8Weight, p);
     }},
    {"QuantizeNf4",
     [](O& o) {
       auto p = o.Of<QuantizeNf4Params>();
       p.K = o.C();
       o.Rows(p.w, p.w_stride);
       Codes(o, p.to);
       return o.Run(QuantizeNf4, p);
     }},
    {"DequantizeNf4",
     [](O& o) {
       auto p = o.Of<DequantizeNf4Params>();
       p.K = o.C();
       Codes(o, p.from);
       o.Rows(p.w, p.w_stride);
       return o.Run(DequantizeNf4, p);
     }},
    {"UpdateRanges",
     [](O& o) {
       auto p = o.Of<UpdateRangesParams>();
       p.grouping = {.run_rows = 1, .row_groups = kStridedRows};
       o.Rows(p.x, p.x_stride);
       o.Vector(p.ranges, kStridedRows);
       p.workspace = o.Workspace(UpdateRangesWorkspace(kStridedRows, kStridedRows));
       return o.Run(UpdateRanges, p);
     }},
    {"Quantize",
     [](O& o) {
       auto p = o.Of<QuantizeParams>();
       p.dither.site = kSite;
       o.Rows(p.x, p.x_stride);
       Codes(o, p.to);
       return o.Run(Quantize, p);
     }},
    {"Dequantize",
     [](O& o) {
       auto p = o.Of<DequantizeParams>();
       Codes(o, p.from);
       o.Rows(p.y, p.y_stride);
       return o.Run(Dequantize, p);
     }},
    {"QuantizedActivationForward",
     [](O& o) {
       QuantizedActivationForwardParams p = {.activation = o.Of<ActivationForwardParams>()};
       p.dither.site = kSite;
       o.Rows(p.activation.x, p.activation.x_stride, p.activation.y, p.activation.y_stride);
       Codes(o, p.x);
       return o.Run(QuantizedActivationForward, p);
     }},
    {"QuantizedActivationBackward",
     [](O& o) {
       QuantizedActivationBackwardParams p = {.activation = o.Of<ActivationBackwardParams>()};
       o.Rows(p.activation.dy, p.activation.dy_stride, p.activation.dx, p.activation.dx_stride);
       Codes(o, p.x);
       return o.Run(QuantizedActivationBackward, p);
     }},
    {"QuantizedNormForward",
     [](O& o) {
       QuantizedNormForwardParams p = {.norm = o.Of<NormalizeForwardParams>()};
       p.dither.site = kSite;
       o.Vector(p.norm.r, kStridedRows);
       o.Vector<float>(p.norm.gamma, o.C());
       o.Rows(p.norm.x, p.norm.x_stride, p.norm.residual, p.norm.residual_stride, p.norm.h,
              p.norm.h_stride, p.norm.z, p.norm.z_stride);
       Codes(o, p.xhat);
       return o.Run(QuantizedNormForward, p);
     }},
    {"QuantizedNormBackward",
     [](O& o) {
       QuantizedNormBackwardParams p = {.norm = o.Of<NormalizeBackwardParams>()};
       o.Vector(p.norm.r, kStridedRows);
       o.Rows(p.norm.dxhat, p.norm.dxhat_stride, p.norm.dx, p.norm.dx_stride);
       Codes(o, p.xhat);
       return o.Run(QuantizedNormBackward, p);
     }},
    {"QuantizedNormSums",
     [](O& o) {
       QuantizedNormSumsParams p = {.affine = o.Of<AffineBackwardParams>()};
       o.Vector(p.affine.dgamma, o.C());
       o.Vector(p.affine.dbeta, o.C());
       o.Rows(p.affine.dz, p.affine.dz_stride);
       Codes(o, p.xhat);
       p.affine.workspace = Sums(o);
       return o.Run(QuantizedNormSums, p);
     }},
    {"FixedAdd",
     [](O& o) {
       auto p = o.Of<FixedAddParams>();
       p.y_dtype = o.dtype();
       o.Rows(p.v, p.v_stride, p.f, p.f_stride, p.v_out, p.v_out_stride, p.y, p.y_stride);
       return o.Run(FixedAdd, p);
     }},
    {"FixedShiftAdd", [](O& o) { return o.Run(FixedShiftAdd, Shift(o)); }},
    {"FixedShiftAddInverse",
     [](O& o) {
       FixedShiftAddParams p = Shift(o);
       p.inverse = true;
       return o.Run(FixedShiftAdd, p);
     }},
    {"RowNorms",
     [](O& o) {
       auto p = o.Of<RowNormsParams>();
       o.Rows(p.x, p.x_stride);
       o.Vector(p.norms, kStridedRows);
       return o.Run(RowNorms, p);
     }},
    {"GatherRows",
     [](O& o) {
       auto p = o.Of<GatherRowsParams>();
       p.x_rows = kStridedRows;
       o.Indices(p.index, {2, 0, 1});
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(GatherRows, p);
     }},
    {"ScatterRows",
     [](O& o) {
       auto p = o.Of<ScatterRowsParams>();
       p.N = 1;
       p.y_rows = kStridedRows;
       p.zero_others = true;
       o.Indices(p.index, {2});
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(ScatterRows, p);
     }},
    {"ScatterRowsAccumulating",
     [](O& o) {
       auto p = o.Of<ScatterRowsParams>();
       p.y_rows = kStridedRows;
       p.accumulate = true;
       o.Indices(p.index, {0, 1, 2});
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(ScatterRows, p);
     }},
    {"CastRows",
     [](O& o) {
       auto p = o.Of<CastRowsParams>();
       p.y_dtype = o.dtype();
       o.Rows<float>(p.x, p.x_stride);
       o.Rows(p.y, p.y_stride);
       return o.Run(CastRows, p);
     }},
    {"AddRows",
     [](O& o) {
       auto p = o.Of<AddRowsParams>();
       p.b_dtype = o.dtype();
       o.Rows<float>(p.a, p.a_stride);
       o.Rows(p.b, p.b_stride);
       o.Rows<float>(p.y, p.y_stride);
       return o.Run(AddRows, p);
     }},
    {"GatherScaledRows",
     [](O& o) {
       auto p = o.Of<GatherScaledRowsParams>();
       p.x_rows = kStridedRows;
       o.Indices(p.index, {2, 0, 2});
       o.Vector(p.weights, kStridedRows);
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(GatherScaledRows, p);
     }},
};

}  // namespace

std::span<const StridedOp> StridedStorageOps() { return kStorageOps; }

}  // namespace snug::kernels

// Ops of layers that take strides, forward and backward, each called with all operands that it may
// have. A new op is one entry.
#include "kernels/activation.h"
#include "kernels/affine.h"
#include "kernels/attention.h"
#include "kernels/bias.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/mean_rows.h"
#include "kernels/norm_merge.h"
#include "kernels/normalize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax.h"
#include "kernels/target_loss.h"
#include "kernels/uniform_noise.h"
#include "tests/kernels/strided_testing.h"

namespace snug::kernels {
namespace {

constexpr RandomSite kSite = {.seed = 7, .step = 3, .micro_batch = 1, .op = 9};

using O = Operands;

// Of two sums of columns.
void* Sums(O& o) { return o.Workspace(2 * ColumnSumsWorkspace(kStridedRows, o.C())); }

// Two documents in kStridedRows queries and keys, so that tiles begin at a row other than 0; one
// head as wide as a row.
AttentionShape Shape(O& o) {
  AttentionShape shape = {.heads = 1, .kv_heads = 1, .D = o.C(), .documents = 2};
  shape.dtype = o.dtype();
  o.Indices(shape.query_offsets, {int64_t{0}, int64_t{1}, kStridedRows});
  shape.device_query_offsets = shape.query_offsets;
  return shape;
}

template <typename Params>
void Workspace(O& o, Params& p, int64_t bytes) {
  p.workspace = static_cast<float*>(o.Workspace(bytes));
  p.workspace_bytes = bytes;
}

MergeNormParams Merge(O& o) {
  auto p = o.Of<MergeNormParams>();
  o.Vector<float>(p.gamma, o.C());
  o.Rows(p.w, p.w_stride, p.merged_w, p.merged_w_stride);
  return p;
}

// A head of C (of 37, its first 36) elements.
RopeParams Rope(O& o) {
  auto p = o.Of<RopeParams>();
  p.heads = 1;
  p.D = p.R = o.C() / 2 * 2;
  o.Vector(p.cos, kStridedRows * p.D / 2);
  o.Vector(p.sin, kStridedRows * p.D / 2);
  o.Rows(p.x, p.x_stride, p.y, p.y_stride);
  return p;
}

constexpr StridedOp kLayerOps[] = {
    {"ActivationForward",
     [](O& o) {
       auto p = o.Of<ActivationForwardParams>();
       p.activation = Activation::kRelu;
       p.two_bit = TwoBitOf(p.activation);
       o.Rows(p.x, p.x_stride, p.y, p.y_stride, p.codes, p.code_stride, p.mask, p.mask_stride);
       return o.Run(ActivationForward, p);
     }},
    {"ActivationBackward",
     [](O& o) {
       auto p = o.Of<ActivationBackwardParams>();
       o.Rows(p.dy, p.dy_stride, p.x, p.x_stride, p.dx, p.dx_stride);
       return o.Run(ActivationBackward, p);
     }},
    {"AffineForward",
     [](O& o) {
       auto p = o.Of<AffineForwardParams>();
       o.Vector<float>(p.gamma, o.C());
       o.Vector<float>(p.beta, o.C());
       o.Rows(p.xhat, p.xhat_stride, p.z, p.z_stride);
       return o.Run(AffineForward, p);
     }},
    {"AffineBackward",
     [](O& o) {
       auto p = o.Of<AffineBackwardParams>();
       o.Vector<float>(p.gamma, o.C());
       o.Vector(p.dgamma, o.C());
       o.Vector(p.dbeta, o.C());
       o.Rows(p.dz, p.dz_stride, p.xhat, p.xhat_stride, p.dxhat, p.dxhat_stride);
       p.workspace = Sums(o);
       return o.Run(AffineBackward, p);
     }},
    {"AttentionForward",
     [](O& o) {
       AttentionForwardParams p = {.shape = Shape(o)};
       o.Rows(p.q, p.q_stride, p.k, p.k_stride, p.v, p.v_stride, p.o, p.o_stride, p.lse,
              p.lse_stride);
       Workspace(o, p, AttentionForwardBytes(SizesOf(p.shape, 1)));
       return o.Run(AttentionForward, p);
     }},
    {"AttentionBackward",
     [](O& o) {
       AttentionBackwardParams p = {.shape = Shape(o)};
       o.Rows(p.dO, p.dO_stride, p.q, p.q_stride, p.k, p.k_stride, p.v, p.v_stride, p.o, p.o_stride,
              p.lse, p.lse_stride, p.dq, p.dq_stride, p.dk, p.dk_stride, p.dv, p.dv_stride);
       const AttentionSizes sizes = SizesOf(p.shape, 1);
       Workspace(o, p,
                 OnCpu() ? AttentionBackwardBytes(sizes) : AttentionBackwardStreamBytes(sizes));
       return o.Run(AttentionBackward, p);
     }},
    {"BiasForward",
     [](O& o) {
       auto p = o.Of<BiasForwardParams>();
       o.Vector(p.b, o.C());
       o.Rows(p.y, p.y_stride);
       return o.Run(BiasForward, p);
     }},
    {"BiasBackward",
     [](O& o) {
       auto p = o.Of<BiasBackwardParams>();
       o.Rows(p.dy, p.dy_stride);
       o.Vector(p.db, o.C());
       p.workspace = Sums(o);
       return o.Run(BiasBackward, p);
     }},
    {"MeanRowsForward",
     [](O& o) {
       auto p = o.Of<MeanRowsForwardParams>();
       p.G = 1;
       o.Rows(p.x, p.x_stride, p.y, p.y_stride);
       return o.Run(MeanRowsForward, p);
     }},
    {"MeanRowsBackward",
     [](O& o) {
       auto p = o.Of<MeanRowsBackwardParams>();
       p.G = 1;
       o.Rows(p.dy, p.dy_stride, p.dx, p.dx_stride);
       return o.Run(MeanRowsBackward, p);
     }},
    {"CrossEntropy",
     [](O& o) {
       auto p = o.Of<CrossEntropyParams>();
       p.V = o.C();
       const auto last = static_cast<int32_t>(o.C() - 1);
       o.Indices(p.labels, {last, 0, last / 2});
       o.Vector(p.row_loss, kStridedRows);
       o.Rows(p.logits, p.logits_stride, p.dlogits, p.dlogits_stride);
       return o.Run(CrossEntropy, p);
     }},
    {"Dropout",
     [](O& o) {
       auto p = o.Of<DropoutParams>();
       p.rate = 0.5;
       p.site = kSite;
       o.Rows(p.x, p.x_stride, p.y, p.y_stride, p.mask, p.mask_stride);
       return o.Run(Dropout, p);
     }},
    {"EmbeddingForward",
     [](O& o) {
       auto p = o.Of<EmbeddingForwardParams>();
       p.V = kStridedRows;
       o.Indices(p.ids, {2, 0, 1});
       o.Rows(p.W, p.W_stride, p.y, p.y_stride);
       return o.Run(EmbeddingForward, p);
     }},
    {"EmbeddingBackward",
     [](O& o) {
       auto p = o.Of<EmbeddingBackwardParams>();
       p.V = kStridedRows;
       o.Indices(p.ids, {2, 0, 2});
       o.Rows(p.dy, p.dy_stride, p.dW, p.dW_stride);
       p.workspace = o.Workspace(EmbeddingWorkspace(kStridedRows));
       return o.Run(EmbeddingBackward, p);
     }},
    {"GluForward",
     [](O& o) {
       auto p = o.Of<GluForwardParams>();
       p.two_bit = TwoBitOf(p.gate);
       o.Rows(p.g, p.g_stride, p.u, p.u_stride, p.p, p.p_stride, p.a, p.a_stride, p.codes,
              p.code_stride);
       return o.Run(GluForward, p);
     }},
    {"GluBackward",
     [](O& o) {
       auto p = o.Of<GluBackwardParams>();
       o.Rows(p.dp, p.dp_stride, p.g, p.g_stride, p.u, p.u_stride, p.dg, p.dg_stride, p.du,
              p.du_stride);
       return o.Run(GluBackward, p);
     }},
    {"GluBackwardFromCodes",
     [](O& o) {
       auto p = o.Of<GluBackwardParams>();
       p.two_bit = TwoBitOf(p.gate);
       o.Rows(p.dp, p.dp_stride, p.a, p.a_stride, p.u, p.u_stride, p.codes, p.code_stride, p.dg,
              p.dg_stride, p.du, p.du_stride);
       return o.Run(GluBackward, p);
     }},
    {"FoldNorm",
     [](O& o) {
       auto p = o.Of<FoldNormParams>();
       p.w_dtype = o.dtype();
       o.Vector(p.s, kStridedRows);
       o.Vector<float>(p.gamma, o.C());
       o.Vector<float>(p.beta, o.C());
       o.Vector(p.dgamma, o.C());
       o.Vector(p.dbeta, o.C());
       o.Rows(p.g, p.g_stride, p.w, p.w_stride, p.dw, p.dw_stride);
       p.workspace = Sums(o);
       return o.Run(FoldNorm, p);
     }},
    {"MergeNorm", [](O& o) { return o.Run(MergeNorm, Merge(o)); }},
    {"UnmergeNorm", [](O& o) { return o.Run(UnmergeNorm, Merge(o)); }},
    {"NormalizeForward",
     [](O& o) {
       auto p = o.Of<NormalizeForwardParams>();
       p.norm = Norm::kLayer;
       p.eps = 1e-5f;
       o.Vector(p.r, kStridedRows);
       o.Vector<float>(p.gamma, o.C());
       o.Rows(p.x, p.x_stride, p.residual, p.residual_stride, p.h, p.h_stride, p.xhat,
              p.xhat_stride, p.z, p.z_stride);
       return o.Run(NormalizeForward, p);
     }},
    {"NormalizeBackward",
     [](O& o) {
       auto p = o.Of<NormalizeBackwardParams>();
       o.Vector(p.r, kStridedRows);
       o.Rows(p.dxhat, p.dxhat_stride, p.xhat, p.xhat_stride, p.dx, p.dx_stride);
       return o.Run(NormalizeBackward, p);
     }},
    {"NormalizeBackwardFromInput",
     [](O& o) {
       auto p = o.Of<NormalizeBackwardParams>();
       p.norm = Norm::kLayer;
       p.accumulate = true;
       o.Vector(p.r, kStridedRows);
       o.Vector<float>(p.gamma, o.C());
       o.Rows(p.dxhat, p.dxhat_stride, p.x, p.x_stride, p.dx, p.dx_stride);
       return o.Run(NormalizeBackward, p);
     }},
    {"RmsNormForward",
     [](O& o) {
       auto p = o.Of<RmsNormForwardParams>();
       p.eps = 1e-5f;
       o.Vector(p.r, kStridedRows);
       o.Vector<float>(p.gamma, o.C());
       o.Rows(p.x, p.x_stride, p.z, p.z_stride);
       return o.Run(RmsNormForward, p);
     }},
    {"RmsNormBackward",
     [](O& o) {
       auto p = o.Of<RmsNormBackwardParams>();
       o.Vector(p.r, kStridedRows);
       o.Vector<float>(p.gamma, o.C());
       o.Vector(p.dgamma, o.C());
       o.Rows(p.dz, p.dz_stride, p.x, p.x_stride, p.dx, p.dx_stride);
       p.workspace = Sums(o);
       return o.Run(RmsNormBackward, p);
     }},
    {"RopeForward", [](O& o) { return o.Run(RopeForward, Rope(o)); }},
    {"RopeBackward", [](O& o) { return o.Run(RopeBackward, Rope(o)); }},
    {"SoftmaxForward",
     [](O& o) {
       auto p = o.Of<SoftmaxForwardParams>();
       p.bias_dtype = o.dtype();
       p.mask.queries = 1;  // Of three batches: rows of keys are far, too.
       o.Rows(p.mask.keys, p.mask.keys_stride, p.x, p.x_stride, p.bias, p.bias_stride, p.p,
              p.p_stride);
       return o.Run(SoftmaxForward, p);
     }},
    {"SoftmaxForwardBias",
     [](O& o) {
       auto p = o.Of<SoftmaxForwardParams>();
       p.bias_dtype = o.dtype();
       p.mask.queries = kStridedRows;
       o.Rows(p.x, p.x_stride, p.bias, p.bias_stride, p.p, p.p_stride);
       return o.Run(SoftmaxForward, p);
     }},
    {"SoftmaxBackward",
     [](O& o) {
       auto p = o.Of<SoftmaxBackwardParams>();
       p.softcap = 5.0f;
       o.Rows(p.mask.keys, p.mask.keys_stride, p.p, p.p_stride, p.dp, p.dp_stride, p.x, p.x_stride,
              p.dx, p.dx_stride);
       return o.Run(SoftmaxBackward, p);
     }},
    {"SoftmaxBackwardFromCodes",
     [](O& o) {
       auto p = o.Of<SoftmaxBackwardParams>();
       o.Vector(p.step, 1);
       o.Vector(p.minimum, 1);
       o.Rows(p.codes, p.codes_stride, p.dp, p.dp_stride, p.dx, p.dx_stride);
       return o.Run(SoftmaxBackward, p);
     }},
    {"TargetLoss",
     [](O& o) {
       auto p = o.Of<TargetLossParams>();
       p.V = o.C();
       p.kind = TargetLossKind::kBinary;
       o.Vector(p.row_loss, kStridedRows);
       o.Rows(p.logits, p.logits_stride, p.dlogits, p.dlogits_stride, p.targets, p.targets_stride);
       return o.Run(TargetLoss, p);
     }},
    {"AddUniformNoise",
     [](O& o) {
       auto p = o.Of<UniformNoiseParams>();
       p.magnitude = 0.5f;
       p.site = kSite;
       o.Rows(p.x, p.x_stride);
       return o.Run(AddUniformNoise, p);
     }},
};

}  // namespace

std::span<const StridedOp> StridedLayerOps() { return kLayerOps; }

}  // namespace snug::kernels

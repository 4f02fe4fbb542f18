// How calls of the ops of layers are refused. A new op is one entry.
#include <cmath>

#include "kernels/activation.h"
#include "kernels/adamw.h"
#include "kernels/affine.h"
#include "kernels/attention.h"
#include "kernels/bias.h"
#include "kernels/cross_entropy.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/grad_norm.h"
#include "kernels/mean_rows.h"
#include "kernels/norm_merge.h"
#include "kernels/normalize.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/softmax.h"
#include "kernels/target_loss.h"
#include "kernels/uniform_noise.h"
#include "tests/kernels/refusals_testing.h"

namespace snug::kernels {
namespace {

std::vector<RefusedOp> Activations() {
  return {
      Refused<ActivationForwardParams>(
          "ActivationForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(x), SNUG_STRIDE(x_stride),
           SNUG_NULL(y), SNUG_STRIDE(y_stride), SNUG_STRIDE(code_stride), SNUG_STRIDE(mask_stride),
           SNUG_KIND(activation),
           SNUG_SAYS("bad value: two_bit", p.two_bit.threshold[1] = p.two_bit.threshold[0]),
           SNUG_SAYS("bad value: mask", p.activation = Activation::kSilu)}),
      Refused<ActivationBackwardParams>(
          "ActivationBackward", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(dy),
                                 SNUG_STRIDE(dy_stride), SNUG_NULL(x), SNUG_STRIDE(x_stride),
                                 SNUG_NULL(dx), SNUG_STRIDE(dx_stride), SNUG_KIND(activation)}),
      Refused<GluForwardParams>(
          "GluForward", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(g),
                         SNUG_STRIDE(g_stride), SNUG_NULL(u), SNUG_STRIDE(u_stride), SNUG_NULL(p),
                         SNUG_STRIDE(p_stride), SNUG_STRIDE(a_stride), SNUG_STRIDE(code_stride),
                         SNUG_KIND(gate), SNUG_SAYS("bad value: a", p.a = p.p),
                         SNUG_SAYS("bad value: two_bit", p.two_bit.threshold[2] = NAN)}),
      Refused<GluBackwardParams>(
          "GluBackward", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(dp),
                          SNUG_STRIDE(dp_stride), SNUG_NULL(g), SNUG_STRIDE(g_stride), SNUG_NULL(u),
                          SNUG_STRIDE(u_stride), SNUG_STRIDE(dg_stride), SNUG_STRIDE(du_stride),
                          SNUG_KIND(gate), SNUG_SAYS("bad value: du", p.du = p.dg)}),
      Refused<GluBackwardParams>("GluBackwardFromCodes",
                                 {SNUG_STRIDE(code_stride), SNUG_NULL(a), SNUG_STRIDE(a_stride),
                                  SNUG_SAYS("bad value: two_bit", p.two_bit.threshold[0] = NAN)}),
      Refused<BiasForwardParams>("BiasForward",
                                 {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(b),
                                  SNUG_NULL(y), SNUG_STRIDE(y_stride)}),
      Refused<BiasBackwardParams>(
          "BiasBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(dy), SNUG_STRIDE(dy_stride),
           SNUG_NULL(db), SNUG_NULL(workspace, Where::kStream)}),
      Refused<MeanRowsForwardParams>(
          "MeanRowsForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(G), SNUG_TYPE(dtype), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(y), SNUG_STRIDE(y_stride)}),
      Refused<MeanRowsBackwardParams>(
          "MeanRowsBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(G), SNUG_TYPE(dtype), SNUG_NULL(dy),
           SNUG_STRIDE(dy_stride), SNUG_NULL(dx), SNUG_STRIDE(dx_stride)}),
      Refused<DropoutParams>(
          "Dropout",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(x), SNUG_STRIDE(x_stride),
           SNUG_NULL(y), SNUG_STRIDE(y_stride), SNUG_STRIDE(mask_stride), SNUG_VALUE(rate, 1.0),
           SNUG_VALUE(rate, NAN), SNUG_VALUE(site.op, kMaxRandomOps), SNUG_VALUE(first_row, -1),
           SNUG_SAYS("bad shape: N", p.first_row = INT64_MAX)}),
      Refused<UniformNoiseParams>(
          "AddUniformNoise",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(x), SNUG_STRIDE(x_stride),
           SNUG_VALUE(magnitude, -1.0f), SNUG_VALUE(magnitude, INFINITY),
           SNUG_VALUE(site.op, kMaxRandomOps), SNUG_VALUE(first_row, -1),
           SNUG_SAYS("bad shape: N", p.first_row = INT64_MAX)}),
  };
}

RefusedOp Rope(const char* op) {
  return Refused<RopeParams>(op, {SNUG_SHAPE(N), SNUG_SHAPE(heads), SNUG_SET("bad shape", D, 3),
                                  SNUG_SET("bad shape", R, 3), SNUG_SHAPE(R), SNUG_TYPE(dtype),
                                  SNUG_NULL(x), SNUG_STRIDE(x_stride), SNUG_NULL(y),
                                  SNUG_STRIDE(y_stride), SNUG_NULL(cos), SNUG_NULL(sin)});
}

std::vector<RefusedOp> Attention() {
  return {
      Refused<AttentionForwardParams>(
          "AttentionForward",
          {
            SNUG_SHAPE(shape.D), SNUG_SHAPE(shape.heads), SNUG_SHAPE(shape.kv_heads),
                SNUG_SET("bad shape", shape.heads, 0), SNUG_SHAPE(shape.documents),
                SNUG_NULL(shape.query_offsets),
                SNUG_SET("bad index", shape.query_offsets, offset_one),
                SNUG_SAYS("null pointer: key_counts", p.shape.key_begins = zeros),
                SNUG_SAYS("bad index: key_counts", p.shape.key_begins = p.shape.key_counts = zeros),
                SNUG_VALUE(shape.window, -1), SNUG_VALUE(shape.scale, 0.0f),
                SNUG_VALUE(shape.scale, NAN), SNUG_VALUE(shape.softcap, -1.0f),
                SNUG_VALUE(shape.dropout, 1.0), SNUG_TYPE(shape.dtype),
                SNUG_SAYS("bad value: site.op", p.shape.dropout = 0.5;
                          p.shape.site.op = kMaxRandomOps),
                SNUG_SAYS("bad shape: bias.entries", p.shape.bias.table = floats), SNUG_NULL(q),
                SNUG_STRIDE(q_stride), SNUG_NULL(k), SNUG_STRIDE(k_stride), SNUG_NULL(v),
                SNUG_STRIDE(v_stride), SNUG_NULL(o), SNUG_STRIDE(o_stride), SNUG_NULL(lse),
                SNUG_STRIDE(lse_stride), SNUG_NULL(workspace, Where::kCpu),
                SNUG_VALUE(workspace_bytes, 64, Where::kCpu),
                SNUG_NULL(shape.device_query_offsets, Where::kStream)
          }),
      Refused<AttentionBackwardParams>("AttentionBackward",
                                       {SNUG_SHAPE(shape.D),
                                        SNUG_SHAPE(shape.heads),
                                        SNUG_TYPE(shape.dtype),
                                        SNUG_NULL(dO),
                                        SNUG_STRIDE(dO_stride),
                                        SNUG_NULL(q),
                                        SNUG_STRIDE(q_stride),
                                        SNUG_NULL(k),
                                        SNUG_STRIDE(k_stride),
                                        SNUG_NULL(v),
                                        SNUG_STRIDE(v_stride),
                                        SNUG_NULL(o),
                                        SNUG_STRIDE(o_stride),
                                        SNUG_NULL(lse),
                                        SNUG_STRIDE(lse_stride),
                                        SNUG_STRIDE(dq_stride),
                                        SNUG_STRIDE(dk_stride),
                                        SNUG_STRIDE(dv_stride),
                                        SNUG_SAYS("null pointer: bias.table", p.d_bias = floats),
                                        SNUG_NULL(workspace),
                                        SNUG_VALUE(workspace_bytes, 64)}),
      Rope("RopeForward"),
      Rope("RopeBackward"),
      Refused<RopeTableParams>("RopeTable",
                               {SNUG_SHAPE(N), SNUG_SHAPE(D), SNUG_SET("bad shape", D, 3),
                                SNUG_TYPE(position_type), SNUG_NULL(positions), SNUG_IDS(positions),
                                SNUG_NULL(inv_freq), SNUG_NULL(cos), SNUG_NULL(sin)}),
  };
}

std::vector<RefusedOp> Softmaxes() {
  return {
      Refused<SoftmaxForwardParams>(
          "SoftmaxForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(bias_dtype), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(p), SNUG_STRIDE(p_stride), SNUG_VALUE(scale, NAN),
           SNUG_VALUE(softcap, -1.0f), SNUG_SHAPE(mask.heads), SNUG_SHAPE(mask.queries),
           SNUG_VALUE(mask.window, -1), SNUG_VALUE(mask.window, 1), SNUG_STRIDE(mask.keys_stride),
           SNUG_SAYS("bad shape: N", p.mask.queries = 2)}),
      Refused<SoftmaxForwardParams>("SoftmaxForwardBias", {SNUG_STRIDE(bias_stride)}),
      Refused<SoftmaxBackwardParams>(
          "SoftmaxBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(p), SNUG_STRIDE(p_stride),
           SNUG_NULL(dp), SNUG_STRIDE(dp_stride), SNUG_NULL(x), SNUG_STRIDE(x_stride),
           SNUG_NULL(dx), SNUG_STRIDE(dx_stride), SNUG_VALUE(scale, NAN),
           SNUG_VALUE(softcap, -1.0f), SNUG_SHAPE(mask.heads), SNUG_SHAPE(mask.queries),
           SNUG_STRIDE(mask.keys_stride), SNUG_SAYS("bad shape: N", p.mask.heads = 2)}),
      Refused<SoftmaxBackwardParams>(
          "SoftmaxBackwardFromCodes",
          {SNUG_STRIDE(codes_stride), SNUG_NULL(step), SNUG_NULL(minimum), SNUG_SHAPE(groups),
           SNUG_SHAPE(rows_per_group), SNUG_SAYS("bad value: p", p.p = p.dp)}),
  };
}

RefusedOp Merge(const char* op) {
  return Refused<MergeNormParams>(
      op, {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(w),
           SNUG_STRIDE(w_stride), SNUG_NULL(gamma), SNUG_NULL(merged_w),
           SNUG_STRIDE(merged_w_stride), SNUG_SAYS("null pointer: merged_b", p.beta = floats)});
}

std::vector<RefusedOp> Norms() {
  return {
      Refused<AffineForwardParams>(
          "AffineForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(xhat),
           SNUG_STRIDE(xhat_stride), SNUG_NULL(gamma), SNUG_NULL(z), SNUG_STRIDE(z_stride)}),
      Refused<AffineBackwardParams>(
          "AffineBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(dz),
           SNUG_STRIDE(dz_stride), SNUG_NULL(gamma), SNUG_NULL(xhat), SNUG_STRIDE(xhat_stride),
           SNUG_STRIDE(dxhat_stride), SNUG_NULL(workspace, Where::kStream)}),
      Refused<FoldNormParams>("FoldNorm",
                              {
                                SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(w_dtype),
                                    SNUG_TYPE(gamma_dtype), SNUG_NULL(g), SNUG_STRIDE(g_stride),
                                    SNUG_NULL(s), SNUG_NULL(gamma), SNUG_NULL(w),
                                    SNUG_STRIDE(w_stride), SNUG_STRIDE(dw_stride),
                                    SNUG_SAYS("bad value: dw", p.accumulate = true; p.g = p.dw),
                                    SNUG_NULL(workspace, Where::kStream)
                              }),
      Merge("MergeNorm"),
      Merge("UnmergeNorm"),
      Refused<NormalizeForwardParams>(
          "NormalizeForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_STRIDE(residual_stride), SNUG_NULL(h), SNUG_STRIDE(h_stride),
           SNUG_STRIDE(xhat_stride), SNUG_NULL(r), SNUG_STRIDE(z_stride), SNUG_NULL(gamma),
           SNUG_VALUE(eps, -1.0f), SNUG_KIND(norm), SNUG_SAYS("bad value: z", p.z = p.xhat)}),
      Refused<NormalizeBackwardParams>(
          "NormalizeBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_NULL(dxhat),
           SNUG_STRIDE(dxhat_stride), SNUG_NULL(xhat), SNUG_STRIDE(xhat_stride), SNUG_NULL(r),
           SNUG_NULL(dx), SNUG_STRIDE(dx_stride), SNUG_KIND(norm)}),
      Refused<NormalizeBackwardParams>("NormalizeBackwardFromInput",
                                       {SNUG_TYPE(gamma_dtype), SNUG_STRIDE(x_stride),
                                        SNUG_SAYS("null pointer: xhat", p.x = nullptr)}),
      Refused<RmsNormForwardParams>(
          "RmsNormForward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(x),
           SNUG_STRIDE(x_stride), SNUG_NULL(z), SNUG_STRIDE(z_stride), SNUG_NULL(r),
           SNUG_NULL(gamma), SNUG_VALUE(eps, -1.0f)}),
      Refused<RmsNormBackwardParams>(
          "RmsNormBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_TYPE(dtype), SNUG_TYPE(gamma_dtype), SNUG_NULL(dz),
           SNUG_STRIDE(dz_stride), SNUG_NULL(x), SNUG_STRIDE(x_stride), SNUG_NULL(r),
           SNUG_NULL(gamma), SNUG_STRIDE(dx_stride), SNUG_NULL(workspace, Where::kStream)}),
  };
}

std::vector<RefusedOp> Ends() {
  return {
      Refused<CrossEntropyParams>(
          "CrossEntropy",
          {SNUG_SHAPE(N), SNUG_SHAPE(V), SNUG_TYPE(dtype), SNUG_TYPE(label_type), SNUG_NULL(logits),
           SNUG_STRIDE(logits_stride), SNUG_NULL(labels), SNUG_IDS(labels), SNUG_NULL(row_loss),
           SNUG_STRIDE(dlogits_stride), SNUG_VALUE(softcap, -1.0f),
           SNUG_VALUE(label_smoothing, 1.0f), SNUG_VALUE(z_loss, -1.0f), SNUG_VALUE(z_loss, NAN)}),
      Refused<TargetLossParams>(
          "TargetLoss",
          {SNUG_SHAPE(N), SNUG_SHAPE(V), SNUG_TYPE(dtype), SNUG_NULL(logits),
           SNUG_STRIDE(logits_stride), SNUG_NULL(targets), SNUG_STRIDE(targets_stride),
           SNUG_NULL(row_loss), SNUG_STRIDE(dlogits_stride), SNUG_KIND(kind)}),
      Refused<EmbeddingForwardParams>(
          "EmbeddingForward", {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(V), SNUG_TYPE(dtype),
                               SNUG_NULL(ids), SNUG_IDS(ids), SNUG_NULL(W), SNUG_STRIDE(W_stride),
                               SNUG_NULL(y), SNUG_STRIDE(y_stride)}),
      Refused<EmbeddingBackwardParams>(
          "EmbeddingBackward",
          {SNUG_SHAPE(N), SNUG_SHAPE(C), SNUG_SHAPE(V), SNUG_TYPE(dtype), SNUG_NULL(ids),
           SNUG_IDS(ids), SNUG_NULL(dy), SNUG_STRIDE(dy_stride), SNUG_NULL(dW),
           SNUG_STRIDE(dW_stride), SNUG_NULL(workspace, Where::kStream),
           SNUG_VALUE(workspace, static_cast<char*>(p.workspace) + 4, Where::kStream)}),
      Refused<AdamWParams>(
          "AdamW",
          {SNUG_SHAPE(count), SNUG_NULL(tensors), SNUG_VALUE(step, 0), SNUG_VALUE(lr, -1.0),
           SNUG_VALUE(lr, NAN), SNUG_VALUE(beta1, 1.0), SNUG_VALUE(beta2, -1.0),
           SNUG_VALUE(eps, -1.0), SNUG_VALUE(weight_decay, -1.0),
           SNUG_SAYS("bad shape: n", Tensor(p).n = -1),
           SNUG_SAYS("null pointer: p", Tensor(p).p = nullptr),
           SNUG_SAYS("null pointer: g", Tensor(p).g = nullptr),
           SNUG_SAYS("null pointer: m", Tensor(p).m = nullptr),
           SNUG_SAYS("null pointer: v", Tensor(p).v = nullptr),
           SNUG_SAYS("bad dtype: copy_dtype", Tensor(p).copy_dtype = DType::kF32),
           SNUG_SAYS("bad dtype: copy_dtype", Tensor(p).copy_dtype = static_cast<DType>(3))}),
      Refused<AdamWParams>(
          "AdamWCodes",
          {SNUG_SAYS("null pointer: codes.v", Tensor(p).codes.v = nullptr),
           SNUG_SAYS("null pointer: codes.m_scale", Tensor(p).codes.m_scale = nullptr),
           SNUG_SAYS("null pointer: codes.v_scale", Tensor(p).codes.v_scale = nullptr),
           SNUG_SAYS("bad value: codes", Tensor(p).m = floats)}),
      Refused<SumSquaresParams>(
          "SumSquares",
          {SNUG_SHAPE(count), SNUG_NULL(tensors), SNUG_NULL(sum_squares),
           SNUG_SAYS("bad shape: n", Tensor(p).n = -1),
           SNUG_SAYS("null pointer: x", Tensor(p).x = nullptr),
           SNUG_SAYS("bad dtype: dtype", Tensor(p).dtype = static_cast<DType>(3)),
           SNUG_NULL(workspace, Where::kStream),
           SNUG_VALUE(workspace, static_cast<char*>(p.workspace) + 4, Where::kStream)}),
      Refused<ClipFactorParams>(
          "ClipFactor", {SNUG_NULL(sum_squares), SNUG_NULL(factor), SNUG_VALUE(max_norm, 0.0),
                         SNUG_VALUE(max_norm, NAN)}),
  };
}

}  // namespace

std::vector<RefusedOp> RefusedLayerOps() {
  std::vector<RefusedOp> all;
  for (auto group : {Activations, Attention, Softmaxes, Norms, Ends}) {
    for (RefusedOp& op : group()) all.push_back(std::move(op));
  }
  return all;
}

}  // namespace snug::kernels

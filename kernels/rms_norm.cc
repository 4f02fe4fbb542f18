// RMS norm as one op, made of the fused forms of normalize.h and affine.h, on either device; where
// it fits, backward on CUDA is a kernel of its own.
#include "kernels/rms_norm.h"

#include "kernels/cpu/check.h"

namespace snug::kernels {

Error RmsNormForward(const RmsNormForwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.PerRow(p.z, "z").PerRow(p.r, "r");
  if (!check.ok()) return check.error();
  return NormalizeForward({.x = p.x,
                           .xhat = nullptr,
                           .r = p.r,
                           .N = p.N,
                           .C = p.C,
                           .x_stride = p.x_stride,
                           .dtype = p.dtype,
                           .eps = p.eps,
                           .z = p.z,
                           .gamma = p.gamma,
                           .z_stride = p.z_stride,
                           .gamma_dtype = p.gamma_dtype,
                           .offset = p.offset,
                           .round_xhat = false},
                          stream);
}

namespace {

bool AtOnce(const RmsNormBackwardParams& p, Stream stream) {
  return stream != nullptr && p.dx != nullptr && p.dgamma != nullptr &&
         cuda::FitsRmsNormBackward != nullptr && cuda::FitsRmsNormBackward(p);
}

}  // namespace

Error RmsNormBackward(const RmsNormBackwardParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.gamma_dtype, "gamma_dtype")
      .Rows(p.dz, "dz", p.dz_stride, "dz_stride")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .PerRow(p.r, "r");
  if (p.dx != nullptr) check.PerRow(p.gamma, "gamma").Rows(p.dx, "dx", p.dx_stride, "dx_stride");
  if (stream != nullptr && p.dgamma != nullptr) check.Pointer(p.workspace, "workspace");
  if (!check.ok()) return check.error();
  if (AtOnce(p, stream)) return cuda::RmsNormBackward(p, stream);
  if (p.dgamma != nullptr) {  // Before dx, which may be written over dz.
    const Error error = AffineBackward({.dz = p.dz,
                                        .xhat = p.x,
                                        .dgamma = p.dgamma,
                                        .N = p.N,
                                        .C = p.C,
                                        .dz_stride = p.dz_stride,
                                        .xhat_stride = p.x_stride,
                                        .dtype = p.dtype,
                                        .accumulate = p.accumulate_dgamma,
                                        .workspace = p.workspace,
                                        .r = p.r},
                                       stream);
    if (!error.ok()) return error;
  }
  if (p.dx == nullptr) return {};
  return NormalizeBackward({.dxhat = p.dz,
                            .r = p.r,
                            .dx = p.dx,
                            .N = p.N,
                            .C = p.C,
                            .dxhat_stride = p.dz_stride,
                            .dx_stride = p.dx_stride,
                            .dtype = p.dtype,
                            .accumulate = p.accumulate_dx,
                            .x = p.x,
                            .x_stride = p.x_stride,
                            .gamma = p.gamma,
                            .gamma_dtype = p.gamma_dtype,
                            .offset = p.offset},
                           stream);
}

}  // namespace snug::kernels

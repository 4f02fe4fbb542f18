// Norms whose xhat is stashed as codes (quantize.h), quantised while normalising and dequantised in
// the backward: forward writes a byte an element more than a norm without a stash, backward reads
// one less than from bf16.
//
// Each takes the params of the plain op (normalize.h, affine.h) with `xhat` null, and the codes in
// its place. Forward gives the z, h and r of the plain op (on CUDA r may differ in its last bit, as
// rows are summed in another order) and the codes of Quantize of its xhat in dtype. Of kGroups the
// ranges are read: those of this tensor's last call, of a recompute, or of delayed statistics.
// Backward's error is that of xhat: dbeta is exact, |d dgamma| <= step * sum |dz|.
#ifndef KERNELS_QUANTIZED_NORM_H_
#define KERNELS_QUANTIZED_NORM_H_

#include "kernels/affine.h"
#include "kernels/normalize.h"
#include "kernels/quantize.h"
#include "kernels/types.h"

namespace snug::kernels {

// x -> z, r and codes of xhat. `norm.z` is needed, and norm.round_xhat: z is of xhat in dtype.
// Traffic: that of the plain op without xhat + codes and ranges.
struct QuantizedNormForwardParams {
  NormalizeForwardParams norm;
  Quantized xhat;
  Dither dither;
};
Error QuantizedNormForward(const QuantizedNormForwardParams& p, Stream stream);

// dz (or dxhat), codes -> dx. Traffic: that of the plain op with codes instead of xhat.
struct QuantizedNormBackwardParams {
  NormalizeBackwardParams norm;
  Quantized xhat;
};
Error QuantizedNormBackward(const QuantizedNormBackwardParams& p, Stream stream);

// dz, codes -> dgamma, dbeta, each unless it is null. `affine.dxhat` is null: dx comes from the op
// above. Traffic: N*C elements + codes + 4*C bytes a sum.
struct QuantizedNormSumsParams {
  AffineBackwardParams affine;
  Quantized xhat;
};
Error QuantizedNormSums(const QuantizedNormSumsParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_QUANTIZED_NORM_H_

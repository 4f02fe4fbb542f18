// Activations whose input is stashed as codes (quantize.h), quantised while computing y and
// dequantised in the backward.
//
// Each takes the params of the plain op (activation.h) and the codes of x. Forward gives the y of
// the plain op and the codes of Quantize(x). Of kGroups the ranges are read. Backward's error is
// |d dx| <= sup |h''| step |dy|: 0.798 for GELU, 1/2 for SiLU.
#ifndef KERNELS_QUANTIZED_ACTIVATION_H_
#define KERNELS_QUANTIZED_ACTIVATION_H_

#include "kernels/activation.h"
#include "kernels/quantize.h"
#include "kernels/types.h"

namespace snug::kernels {

// x -> y and codes of x. No codes in one or two bits. Traffic: 2*N*C elements + codes and ranges.
struct QuantizedActivationForwardParams {
  ActivationForwardParams activation;
  Quantized x;
  Dither dither;
};
Error QuantizedActivationForward(const QuantizedActivationForwardParams& p, Stream stream);

// dy, codes -> dx; `activation.x` is null. Traffic: 2*N*C elements + codes and ranges.
struct QuantizedActivationBackwardParams {
  ActivationBackwardParams activation;
  Quantized x;
};
Error QuantizedActivationBackward(const QuantizedActivationBackwardParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_QUANTIZED_ACTIVATION_H_

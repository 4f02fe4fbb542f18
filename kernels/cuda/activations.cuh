// Activations on CUDA: value and slope of a pack. Multiply-adds are fused where they are written as
// fmaf; an exponential or a reciprocal is one instruction, good to some 2 units.
#ifndef KERNELS_CUDA_ACTIVATIONS_CUH_
#define KERNELS_CUDA_ACTIVATIONS_CUH_

#include "kernels/activation.h"
#include "kernels/activation_constants.h"
#include "kernels/cuda/pack.cuh"

namespace snug::kernels::cuda {

struct ValueAndSlope {
  float value, slope;
};

struct Sigmoid {
  float s;      // 1 / (1 + exp(-z))
  float minus;  // 1 - s, without cancellation
};

// From exp(-|z|), which cannot overflow.
__device__ inline Sigmoid SigmoidOf(float z) {
  const float t = __expf(-fabsf(z));
  const float large = __fdividef(1.0f, 1.0f + t);
  const float small = t * large;
  return z < 0.0f ? Sigmoid{small, large} : Sigmoid{large, small};
}

struct Silu {
  __device__ static ValueAndSlope Of(float x) {
    const Sigmoid sigmoid = SigmoidOf(x);
    return {x * sigmoid.s, sigmoid.s * fmaf(x, sigmoid.minus, 1.0f)};
  }
};

struct GeluTanh {
  __device__ static ValueAndSlope Of(float x) {
    const float square = x * x;
    const Sigmoid sigmoid = SigmoidOf(activation::kTwice * fmaf(activation::kCubic * square, x, x));
    // Far out the sigmoid has saturated and only an infinity must not arise to meet its 0.
    constexpr float kFar = 1e6f;
    const float near = square > kFar ? kFar : square;
    const float rise = activation::kTwice * x * fmaf(3.0f * activation::kCubic, near, 1.0f);
    return {x * sigmoid.s, sigmoid.s * fmaf(rise, sigmoid.minus, 1.0f)};
  }
};

struct Gelu {
  __device__ static ValueAndSlope Of(float x) {
    const float e = __expf((-0.5f * x) * x);
    const float u = __fdividef(1.0f, fmaf(activation::kScale, fabsf(x), 1.0f));
    float q = fmaf(activation::kTail7, u, activation::kTail6);
    q = fmaf(q, u, activation::kTail5);
    q = fmaf(q, u, activation::kTail4);
    q = fmaf(q, u, activation::kTail3);
    q = fmaf(q, u, activation::kTail2);
    q = fmaf(q, u, activation::kTail1);
    q = fmaf(q, u, activation::kTail0);
    const float tail = e * (q * u);
    const float below = x < 0.0f ? tail : 1.0f - tail;
    return {x * below, fmaf(x, e * activation::kDensity, below)};
  }
};

struct Relu {
  __device__ static ValueAndSlope Of(float x) {
    return {x <= 0.0f ? 0.0f : x, x > 0.0f ? 1.0f : 0.0f};
  }
};

struct HyperbolicTangent {
  __device__ static ValueAndSlope Of(float x) {
    const float e = __expf(-2.0f * fabsf(x));  // Cannot overflow, and the slope does not cancel.
    const float inverse = __fdividef(1.0f, 1.0f + e);
    return {tanhf(x), 4.0f * e * inverse * inverse};
  }
};

// body(Silu{}), body(GeluTanh{}), ...: the same for all threads of a launch.
template <typename Body>
__device__ inline void ByActivation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kRelu:
      return body(Relu{});
    case Activation::kTanh:
      return body(HyperbolicTangent{});
  }
}

}  // namespace snug::kernels::cuda

#endif  // KERNELS_CUDA_ACTIVATIONS_CUH_

// Numbers of the activations that the CPU and CUDA share.
#ifndef KERNELS_ACTIVATION_CONSTANTS_H_
#define KERNELS_ACTIVATION_CONSTANTS_H_

namespace snug::kernels::activation {

// GELU's tanh form is x s(kTwice (x + kCubic x^3)).
inline constexpr float kTwice = 1.5957691216057308f;  // 2 sqrt(2 / pi)
inline constexpr float kCubic = 0.044715f;

// The normal distribution's tail: Phi(-t) = exp(-t^2 / 2) * u * q(u) for t >= 0 with u = 1 / (1 +
// kScale t), q a polynomial of these coefficients. Relative error 1.3e-7 as far as exp(-t^2 / 2) is
// not 0: minimax over t <= 13.5, fitted in double, the scale found by trial. One exponential gives
// the distribution and, times kDensity, its density.
inline constexpr float kScale = 0.3f;
inline constexpr float kTail7 = 0.035931956f;
inline constexpr float kTail6 = -0.158276841f;
inline constexpr float kTail5 = 0.208207935f;
inline constexpr float kTail4 = -0.0553949662f;
inline constexpr float kTail3 = 0.129469737f;
inline constexpr float kTail2 = 0.0996373445f;
inline constexpr float kTail1 = 0.120798379f;
inline constexpr float kTail0 = 0.119626388f;
inline constexpr float kDensity = 0.3989422804014327f;  // 1 / sqrt(2 pi)

}  // namespace snug::kernels::activation

#endif  // KERNELS_ACTIVATION_CONSTANTS_H_

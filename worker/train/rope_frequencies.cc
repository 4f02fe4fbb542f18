#include "worker/train/rope_frequencies.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace snug::train {
namespace {

using program::RopeScaling;

// theta^(2j/D), the wavelengths over 2 pi. A power rounded otherwise in its last bit would turn
// position 1,000 by another 1e-4.
at::Tensor Periods(int64_t width, double theta) {
  const at::Tensor exponent = at::arange(0, width, 2, at::kFloat) / static_cast<double>(width);
  return at::pow(theta, exponent);
}

// Transformers' _compute_llama3_parameters, one frequency at a time. Python scalars meet fp32
// tensors there: each is rounded first.
float Llama3Scaled(float frequency, const RopeScaling& scaling) {
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto original = static_cast<double>(scaling.original_max_positions);
  const auto low_wavelength = static_cast<float>(original / scaling.low_freq_factor);
  const auto high_wavelength = static_cast<float>(original / scaling.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) * (1.0f / frequency);
  if (wavelength > low_wavelength) return frequency / factor;
  if (wavelength < high_wavelength) return frequency;
  const auto width = static_cast<float>(scaling.high_freq_factor - scaling.low_freq_factor);
  const float smooth = (static_cast<float>(original) * (1.0f / wavelength) - low) / width;
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

at::Tensor Llama3(at::Tensor frequencies, const RopeScaling& scaling) {
  auto* first = frequencies.data_ptr<float>();
  for (int64_t j = 0; j < frequencies.numel(); ++j) first[j] = Llama3Scaled(first[j], scaling);
  return frequencies;
}

// Between which frequencies scaling sets in (Peng et al. 2023, section 3.2): those that turn
// beta_fast and beta_slow times within the original length.
struct Ramp {
  double low, high;
};

Ramp RampOf(int64_t width, double theta, const RopeScaling& scaling) {
  const auto dimension = [&](double turns) {
    return static_cast<double>(width) *
           std::log(static_cast<double>(scaling.original_max_positions) /
                    (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(theta));
  };
  Ramp ramp = {dimension(scaling.beta_fast), dimension(scaling.beta_slow)};
  if (scaling.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp = {std::max(ramp.low, 0.0), std::min(ramp.high, static_cast<double>(width - 1))};
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

// Transformers' _compute_yarn_parameters.
at::Tensor Yarn(int64_t width, double theta, const RopeScaling& scaling) {
  const at::Tensor periods = Periods(width, theta);
  const at::Tensor extrapolated = at::reciprocal(periods);
  const at::Tensor interpolated = at::reciprocal(scaling.factor * periods);
  const Ramp ramp = RampOf(width, theta, scaling);
  const at::Tensor rising =
      ((at::arange(width / 2, at::kFloat) - ramp.low) / (ramp.high - ramp.low)).clamp(0.0, 1.0);
  const at::Tensor share = 1.0 - rising;
  return interpolated * (1.0 - share) + extrapolated * share;
}

at::Tensor Frequencies(int64_t width, double theta, const RopeScaling& scaling) {
  switch (scaling.kind) {
    case RopeScaling::Kind::kDefault:
      break;
    case RopeScaling::Kind::kLinear:
      return at::reciprocal(Periods(width, theta)) / scaling.factor;
    case RopeScaling::Kind::kLlama3:
      return Llama3(at::reciprocal(Periods(width, theta)), scaling);
    case RopeScaling::Kind::kYarn:
      return Yarn(width, theta, scaling);
  }
  return at::reciprocal(Periods(width, theta));
}

}  // namespace

std::vector<float> RopeFrequencies(int64_t width, double theta, const RopeScaling& scaling) {
  const c10::InferenceMode no_autograd;
  const at::Tensor frequencies = Frequencies(width, theta, scaling).contiguous();
  const auto* first = frequencies.data_ptr<float>();
  return {first, first + frequencies.numel()};
}

}  // namespace snug::train

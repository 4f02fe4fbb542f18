#include "worker/train/rope_frequencies.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <cmath>
#include <numbers>

namespace snug::train {
namespace {

using program::RopeScaling;

// 1 / theta^(2j/D). A power rounded otherwise in its last bit would turn position 1,000 by another
// 1e-4.
std::vector<float> Unscaled(const program::ModelConfig& config) {
  const c10::InferenceMode no_autograd;
  const at::Tensor exponent =
      at::arange(0, config.head_width, 2, at::kFloat) / static_cast<double>(config.head_width);
  const at::Tensor frequency = at::reciprocal(at::pow(config.rope_theta, exponent)).contiguous();
  const auto* first = frequency.data_ptr<float>();
  return {first, first + frequency.numel()};
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

}  // namespace

std::vector<float> RopeFrequencies(const program::ModelConfig& config) {
  std::vector<float> frequencies = Unscaled(config);
  for (float& frequency : frequencies) {
    switch (config.rope_scaling.kind) {
      case RopeScaling::Kind::kDefault:
        break;
      case RopeScaling::Kind::kLinear:
        frequency /= static_cast<float>(config.rope_scaling.factor);
        break;
      case RopeScaling::Kind::kLlama3:
        frequency = Llama3Scaled(frequency, config.rope_scaling);
        break;
    }
  }
  return frequencies;
}

}  // namespace snug::train

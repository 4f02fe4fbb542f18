// Rotary embedding on the CPU: frequencies, the table of angles, checks of the rotation.
#include "kernels/rope.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {
namespace {

// transformers' _compute_llama3_parameters for one frequency. torch divides a number by a tensor as
// number * reciprocal, and rounds after every operation; so does this.
float Llama3Frequency(const RopeFrequencyParams& p, float inv_freq) {
  const float low = static_cast<float>(p.low_freq_factor);
  const float factor = static_cast<float>(p.factor);
  const float context = static_cast<float>(p.original_max_position);
  const float low_wavelength = static_cast<float>(p.original_max_position / p.low_freq_factor);
  const float high_wavelength = static_cast<float>(p.original_max_position / p.high_freq_factor);
  const float wavelength = (1.0f / inv_freq) * static_cast<float>(2.0 * M_PI);
  if (wavelength > low_wavelength) return inv_freq / factor;
  if (wavelength < high_wavelength) return inv_freq;
  const float smooth = ((1.0f / wavelength) * context - low) /
                       static_cast<float>(p.high_freq_factor - p.low_freq_factor);
  return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

float Scaled(const RopeFrequencyParams& p, float inv_freq) {
  switch (p.scaling) {
    case RopeScaling::kDefault:
      return inv_freq;
    case RopeScaling::kLinear:
      return inv_freq / static_cast<float>(p.factor);
    case RopeScaling::kLlama3:
      return Llama3Frequency(p, inv_freq);
  }
  return inv_freq;
}

Error CheckRope(const RopeParams& p, Stream stream) {
  cpu::Check check(stream, p.N, p.heads * p.D, "heads");
  return check.That(p.D >= 2 && p.D % 2 == 0, ErrorCode::kBadShape, "D")
      .Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .PerRow(p.cos, "cos")
      .PerRow(p.sin, "sin")
      .error();
}

Error Rotate(const RopeParams& p, bool backward, Stream stream) {
  if (const Error error = CheckRope(p, stream); !error.ok()) return error;
  cpu::ParallelFor(p.N, 2 * p.N * p.heads * p.D * SizeOf(p.dtype),
                   [&](Range rows) { BestLoops().rope(p, backward, rows); });
  return {};
}

void TableRows(const RopeTableParams& p, Range rows) {
  const int64_t half = p.D / 2;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float position = static_cast<float>(cpu::IndexAt(p.positions, p.position_type, i));
    for (int64_t j = 0; j < half; ++j) {
      const float angle = position * p.inv_freq[j];
      p.cos[i * half + j] = std::cos(angle);
      p.sin[i * half + j] = std::sin(angle);
    }
  }
}

}  // namespace

Error RopeFrequencies(const RopeFrequencyParams& p) {
  cpu::Check check(nullptr, 1, p.D, "D");
  check.Pointer(p.inv_freq, "inv_freq")
      .That(p.D % 2 == 0, ErrorCode::kBadShape, "D")
      .That(p.theta > 0.0, ErrorCode::kBadValue, "theta")
      .That(p.scaling <= RopeScaling::kLlama3, ErrorCode::kBadValue, "scaling");
  if (p.scaling != RopeScaling::kDefault) {
    check.That(p.factor > 0.0, ErrorCode::kBadValue, "factor");
  }
  if (p.scaling == RopeScaling::kLlama3) {
    check.That(p.low_freq_factor > 0.0, ErrorCode::kBadValue, "low_freq_factor")
        .That(p.high_freq_factor > p.low_freq_factor, ErrorCode::kBadValue, "high_freq_factor")
        .That(p.original_max_position > 0.0, ErrorCode::kBadValue, "original_max_position");
  }
  if (!check.ok()) return check.error();
  for (int64_t j = 0; j < p.D / 2; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(p.D);
    const float power = static_cast<float>(std::pow(p.theta, static_cast<double>(exponent)));
    p.inv_freq[j] = Scaled(p, 1.0f / power);
  }
  return {};
}

Error RopeTable(const RopeTableParams& p, Stream stream) {
  cpu::Check check(stream, p.N, p.D, "D");
  check.That(p.D % 2 == 0, ErrorCode::kBadShape, "D")
      .Type(p.position_type, "position_type")
      .PerRow(p.positions, "positions")
      .PerRow(p.inv_freq, "inv_freq")
      .PerRow(p.cos, "cos")
      .PerRow(p.sin, "sin");
  if (check.ok()) {
    check.That(cpu::IndicesInRange(p.positions, p.position_type, p.N, INT64_MAX),
               ErrorCode::kBadIndex, "positions");
  }
  if (!check.ok()) return check.error();
  constexpr int64_t kCostOfAngle = 64;  // In bytes of traffic that would take as long.
  cpu::ParallelFor(p.N, p.N * p.D * kCostOfAngle, [&](Range rows) { TableRows(p, rows); });
  return {};
}

Error RopeForward(const RopeParams& p, Stream stream) { return Rotate(p, false, stream); }
Error RopeBackward(const RopeParams& p, Stream stream) { return Rotate(p, true, stream); }

}  // namespace snug::kernels

#include "worker/train/resample.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace snug::train {
namespace {

constexpr int kFractionBits = 32 - 8 - 2;  // Pillow's: sums of bytes by weights fit 32 bits.
constexpr int64_t kShare = int64_t{1} << kFractionBits;

// Which pixels of a line give one of the result, and their weights.
struct Taps {
  int64_t first = 0, count = 0;
  std::vector<int32_t> weights;
};

// Of pixel `at`, where `size` pixels become `side`.
Taps TapsOf(int64_t size, int64_t side, int64_t at) {
  Taps taps;
  const double scale = static_cast<double>(size) / static_cast<double>(side);
  const double width = std::max(scale, 1.0);  // Half of the filter's.
  const double centre = (static_cast<double>(at) + 0.5) * scale;
  taps.first = std::max<int64_t>(static_cast<int64_t>(centre - width + 0.5), 0);
  taps.count = std::min(static_cast<int64_t>(centre + width + 0.5), size) - taps.first;
  std::vector<double> shares(static_cast<size_t>(taps.count));
  double sum = 0.0;
  for (int64_t i = 0; i < taps.count; ++i) {
    const double apart =
        std::abs((static_cast<double>(i + taps.first) - centre + 0.5) * (1.0 / width));
    shares[static_cast<size_t>(i)] = apart < 1.0 ? 1.0 - apart : 0.0;
    sum += shares[static_cast<size_t>(i)];
  }
  taps.weights.resize(shares.size());
  for (size_t i = 0; i < shares.size(); ++i)
    taps.weights[i] = static_cast<int32_t>(0.5 + shares[i] / sum * static_cast<double>(kShare));
  return taps;
}

// Weights are not negative, so that a sum rounds to a byte, or one beyond.
uint8_t Byte(int32_t sum) { return static_cast<uint8_t>(std::min(sum >> kFractionBits, 255)); }

// `count` sums side by side, each of pixels `stride` bytes apart.
void Weigh(const Taps& taps, const uint8_t* from, int64_t stride, int64_t count, uint8_t* to) {
  for (int64_t c = 0; c < count; ++c) {
    int32_t sum = 1 << (kFractionBits - 1);
    for (int64_t i = 0; i < taps.count; ++i)
      sum += from[(taps.first + i) * stride + c] * taps.weights[static_cast<size_t>(i)];
    to[c] = Byte(sum);
  }
}

// To `side` columns.
void Across(const Picture& from, int64_t side, uint8_t* to) {
  std::vector<Taps> columns(static_cast<size_t>(side));
  for (int64_t x = 0; x < side; ++x) columns[static_cast<size_t>(x)] = TapsOf(from.width, side, x);
  for (int64_t y = 0; y < from.height; ++y) {
    for (const Taps& taps : columns) {
      Weigh(taps, from.pixels + y * from.line, from.channels, from.channels, to);
      to += from.channels;
    }
  }
}

// To `side` lines.
void Down(const Picture& from, int64_t side, uint8_t* to) {
  const int64_t line = from.width * from.channels;
  for (int64_t y = 0; y < side; ++y)
    Weigh(TapsOf(from.height, side, y), from.pixels, from.line, line, to + y * line);
}

}  // namespace

void Resample(const Picture& from, int64_t side, uint8_t* between, uint8_t* to) {
  Picture half = {.pixels = between, .channels = from.channels};
  // Pillow's order since its version 13: down first where that leaves more out.
  if (from.height > side && 2 * (from.width - side) < from.height - side) {
    Down(from, side, between);
    half.height = side;
    half.width = from.width;
    half.line = from.width * from.channels;
    return Across(half, side, to);
  }
  Across(from, side, between);
  half.height = from.height;
  half.width = side;
  half.line = side * from.channels;
  Down(half, side, to);
}

}  // namespace snug::train

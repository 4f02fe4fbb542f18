#include "worker/train/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/philox.h"
#include "worker/weights/random_ops.h"

namespace snug::train {
namespace {

// Probabilities in place of logits; the largest is at `peak`.
void Softmax(std::span<float> logits, size_t peak, double temperature) {
  const double largest = logits[peak];
  double sum = 0.0;
  for (float& logit : logits) {
    const double weight = std::exp((static_cast<double>(logit) - largest) / temperature);
    logit = static_cast<float>(weight);
    sum += weight;
  }
  for (float& weight : logits) weight = static_cast<float>(weight / sum);
}

}  // namespace

int32_t PickToken(std::span<float> logits, std::span<int32_t> order, const SampleOptions& options,
                  double uniform) {
  for (float logit : logits)
    if (std::isnan(logit)) return -1;
  const auto peak = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (options.temperature == 0.0) return static_cast<int32_t>(peak);
  Softmax(logits, static_cast<size_t>(peak), options.temperature);
  std::iota(order.begin(), order.end(), 0);
  // Likeliest first; equals by their number, so that the order is one everywhere.
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float pa = logits[static_cast<size_t>(a)], pb = logits[static_cast<size_t>(b)];
    return pa != pb ? pa > pb : a < b;
  });
  // A token stays as long as those before it have less than top_p together; the first always.
  double kept = 0.0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || kept < options.top_p))
    kept += logits[static_cast<size_t>(order[count++])];
  double left = uniform * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= logits[static_cast<size_t>(order[i])];
    if (left < 0.0) return order[i];
  }
  return order[count - 1];
}

double SampleUniform(uint64_t seed, int64_t step, int64_t prompt, int64_t token) {
  const kernels::Random4 random =
      kernels::RandomBlock({.seed = seed,
                            .step = static_cast<uint32_t>(step),
                            .micro_batch = static_cast<uint32_t>(prompt),
                            .op = kSampleOp},
                           static_cast<uint64_t>(token));
  const uint64_t word = uint64_t{random.word[0]} << 32 | random.word[1];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

}  // namespace snug::train

#include "worker/train/correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace snug::train {
namespace {

// From 1; numbers that are alike share the mean of their places.
void PutRanks(const float* values, int64_t stride, std::span<uint32_t> order,
              std::span<double> ranks) {
  const auto at = [&](uint32_t i) { return values[static_cast<int64_t>(i) * stride]; };
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return at(a) < at(b); });
  for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
    while (end < order.size() && at(order[end]) == at(order[begin])) ++end;
    const double mean = 0.5 * static_cast<double>(begin + 1 + end);
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = mean;
  }
}

}  // namespace

void PairSums::Add(double x, double y, int64_t n) {
  const double dx = x - mean_x, dy = y - mean_y, share = 1.0 / static_cast<double>(n);
  mean_x += dx * share;
  mean_y += dy * share;
  xx += dx * (x - mean_x);
  yy += dy * (y - mean_y);
  xy += dx * (y - mean_y);
}

std::optional<double> Pearson(const PairSums& sums) {
  if (sums.xx == 0.0 || sums.yy == 0.0) return std::nullopt;
  const double correlation = sums.xy / (std::sqrt(sums.xx) * std::sqrt(sums.yy));
  return std::clamp(correlation, -1.0, 1.0);
}

std::optional<double> Spearman(const Pairs& pairs, const RankScratch& scratch) {
  PutRanks(pairs.x, pairs.stride, scratch.order, scratch.x);
  PutRanks(pairs.y, pairs.stride, scratch.order, scratch.y);
  PairSums sums;
  for (size_t i = 0; i < scratch.order.size(); ++i)
    sums.Add(scratch.x[i], scratch.y[i], static_cast<int64_t>(i) + 1);
  return Pearson(sums);
}

}  // namespace snug::train

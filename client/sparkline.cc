#include "client/sparkline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace snug::client {
namespace {

constexpr const char* kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                   "\u2585", "\u2586", "\u2587", "\u2588"};
constexpr int kHeights = 8;

// At most `columns` means, of stretches as even as they can be.
std::vector<double> Means(const std::vector<double>& values, size_t columns) {
  const size_t count = std::min(columns, values.size());
  std::vector<double> means;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / count);
    const auto end = values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / count);
    means.push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin));
  }
  return means;
}

}  // namespace

std::string Sparkline(const std::vector<double>& values, int columns) {
  if (values.empty() || columns < 1) return "";
  const std::vector<double> means = Means(values, static_cast<size_t>(columns));
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  std::string line;
  for (const double mean : means) {
    const double share = *high > *low ? (mean - *low) / (*high - *low) : 0.5;
    line += kBlocks[std::clamp(static_cast<int>(std::floor(share * kHeights)), 0, kHeights - 1)];
  }
  return line;
}

}  // namespace snug::client

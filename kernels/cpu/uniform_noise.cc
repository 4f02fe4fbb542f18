// Uniform noise on the CPU, element by element: it is added once per step, to the embeddings alone.
#include "kernels/uniform_noise.h"

#include <algorithm>
#include <cmath>

#include "kernels/by_type.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {
namespace {

constexpr int64_t kWords = 4;  // Of a block.

template <typename T>
void AddToRow(const UniformNoiseParams& p, int64_t i) {
  T* x = static_cast<T*>(p.x) + i * p.x_stride;
  const int64_t blocks = (p.C + kWords - 1) / kWords;
  const auto first = static_cast<uint64_t>((p.first_row + i) * blocks);
  for (int64_t block = 0; block < blocks; ++block) {
    const Random4 random = RandomBlock(p.site, first + static_cast<uint64_t>(block));
    const int64_t count = std::min(kWords, p.C - block * kWords);
    for (int64_t w = 0; w < count; ++w) {
      const float noise = p.magnitude * (2.0f * ToUniform(random.word[w]) - 1.0f);
      T& element = x[block * kWords + w];
      element = Narrow<T>(ToFloat(element) + noise);
    }
  }
}

}  // namespace

Error AddUniformNoise(const UniformNoiseParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .That(std::isfinite(p.magnitude) && p.magnitude >= 0.0f, ErrorCode::kBadValue, "magnitude")
      .Draws(p.site, p.first_row, (p.C + kWords - 1) / kWords);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AddUniformNoise, p, stream);
  constexpr int64_t kCostOfElement = 16;  // In bytes of traffic that would take as long.
  cpu::ParallelFor(p.N, p.N * p.C * kCostOfElement, [&](Range rows) {
    ByType(p.dtype, [&](auto t) {
      for (int64_t i = rows.begin; i < rows.end; ++i) AddToRow<decltype(t)>(p, i);
    });
  });
  return {};
}

}  // namespace snug::kernels

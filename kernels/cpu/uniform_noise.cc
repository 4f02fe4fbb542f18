// Uniform noise on the CPU: checks, and division of rows among threads.
#include "kernels/uniform_noise.h"

#include <cmath>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(UniformNoiseRows, void(const UniformNoiseParams&, Range));

Error AddUniformNoise(const UniformNoiseParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .That(std::isfinite(p.magnitude) && p.magnitude >= 0.0f, ErrorCode::kBadValue, "magnitude")
      .Draws(p.site, p.first_row, (p.C + 3) / 4);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AddUniformNoise, p, stream);
  constexpr int64_t kCostOfWord = 8;  // In bytes of traffic that would take as long.
  cpu::ParallelFor(p.N, p.N * p.C * (2 * SizeOf(p.dtype) + kCostOfWord),
                   [&](Range rows) { UniformNoiseRows(p, rows); });
  return {};
}

}  // namespace snug::kernels

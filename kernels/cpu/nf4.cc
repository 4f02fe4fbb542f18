// NF4 weights on the CPU. Quantising is scalar: it is done once, when a weight is loaded.
#include "kernels/nf4.h"

#include <algorithm>
#include <cmath>

#include "kernels/by_type.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/nf4_levels.h"

namespace snug::kernels {

SNUG_VERSIONS(DequantizeTile, void(const FrozenTile&));

namespace {

constexpr int64_t kCostOfElement = 32;  // Of finding a code, in bytes of traffic.

// Elements of block b, as fp32; how many.
template <typename T>
int64_t LoadBlock(const QuantizeNf4Params& p, int64_t b, float* values) {
  const int64_t begin = b * kNf4Block, count = std::min(kNf4Block, p.N * p.K - begin);
  int64_t row = begin / p.K, column = begin % p.K;
  for (int64_t i = 0; i < count; ++i) {
    values[i] = ToFloat(static_cast<const T*>(p.w)[row * p.w_stride + column]);
    if (++column == p.K) {
      column = 0;
      ++row;
    }
  }
  return count;
}

float QuantizeBlock(const float* values, int64_t count, uint8_t* codes) {
  float absmax = 0.0f;
  for (int64_t i = 0; i < count; ++i) absmax = std::max(absmax, std::abs(values[i]));
  const float inverse = InverseOf(absmax);
  for (int64_t i = 0; i < count; i += 2) {
    const uint32_t high = Nf4Code(kNf4Bounds, values[i] * inverse);
    const uint32_t low = i + 1 < count ? Nf4Code(kNf4Bounds, values[i + 1] * inverse) : kNf4Zero;
    codes[i / 2] = static_cast<uint8_t>(high << 4 | low);
  }
  return absmax;
}

void QuantizeBlocks(const QuantizeNf4Params& p, Range blocks, float* absmax) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    float values[kNf4Block];
    const int64_t count =
        ByType(p.dtype, [&](auto t) { return LoadBlock<decltype(t)>(p, b, values); });
    absmax[b] = QuantizeBlock(values, count, static_cast<uint8_t*>(p.to.codes) + b * kNf4Block / 2);
  }
}

// absmax of the blocks becomes codes, scales and the offset.
void QuantizeAbsmax(const QuantizeNf4Params& p, const float* absmax) {
  const int64_t n = p.N * p.K, groups = Nf4Groups(n);
  double sum = 0.0;
  for (int64_t g = 0; g < groups; ++g) {
    sum += Nf4GroupSum(absmax + g * kNf4Group, Nf4GroupSize(n, g));
  }
  *p.to.offset = static_cast<float>(sum / static_cast<double>(Nf4Blocks(n)));
  cpu::ParallelFor(groups, groups * kNf4Group * kCostOfElement, [&](Range some) {
    for (int64_t g = some.begin; g < some.end; ++g) QuantizeNf4Group(p, kDynamicMap, absmax, g);
  });
}

void CheckWeight(const Nf4Weight& w, cpu::Check& check) {
  check.PerRow(w.codes, "codes")
      .PerRow(w.absmax, "absmax")
      .That((w.absmax_codes == nullptr) == (w.offset == nullptr), ErrorCode::kNullPointer,
            "offset");
}

}  // namespace

Error QuantizeNf4(const QuantizeNf4Params& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.to, check);
  const bool nested = p.to.absmax_codes != nullptr;
  if (nested) check.PerRow(p.workspace, "workspace");
  if (!check.ok()) return check.error();
  if (p.N == 0) return {};
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizeNf4, p, stream);
  const int64_t n = p.N * p.K;
  float* absmax = p.to.absmax;
  if (nested) absmax = reinterpret_cast<float*>(static_cast<double*>(p.workspace) + Nf4Groups(n));
  cpu::ParallelFor(Nf4Blocks(n), n * kCostOfElement,
                   [&](Range blocks) { QuantizeBlocks(p, blocks, absmax); });
  if (nested) QuantizeAbsmax(p, absmax);
  return {};
}

Error DequantizeNf4(const DequantizeNf4Params& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.from, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::DequantizeNf4, p, stream);
  const int64_t row_bytes = p.w_stride * SizeOf(p.dtype);
  cpu::ParallelFor(p.N, p.N * p.K * (SizeOf(p.dtype) + 1), [&](Range rows) {
    DequantizeTile(FrozenTile{.W = {.kind = FrozenKind::kNf4, .nf4 = p.from, .int8 = {}},
                              .K = p.K,
                              .rows = rows,
                              .columns = {0, p.K},
                              .to = static_cast<char*>(p.w) + rows.begin * row_bytes,
                              .stride = p.w_stride,
                              .dtype = p.dtype});
  });
  return {};
}

}  // namespace snug::kernels

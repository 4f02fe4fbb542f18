// 8-bit weights on the CPU. Quantising is scalar: it is done once, when a weight is loaded.
#include "kernels/int8_weight.h"

#include <algorithm>
#include <cmath>

#include "kernels/by_type.h"
#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(DequantizeTile, void(const FrozenTile&));

namespace {

template <typename T>
void QuantizeRow(const QuantizeInt8WeightParams& p, int64_t n) {
  const T* w = static_cast<const T*>(p.w) + n * p.w_stride;
  int8_t* codes = p.to.codes + n * p.to.codes_stride;
  float absmax = 0.0f;
  for (int64_t k = 0; k < p.K; ++k) absmax = std::max(absmax, std::abs(ToFloat(w[k])));
  const float scale = Int8Scale(absmax);
  for (int64_t k = 0; k < p.K; ++k) codes[k] = Int8Code(ToFloat(w[k]), scale);
  p.to.absmax[n] = absmax;
}

void CheckWeight(const Int8Weight& w, cpu::Check& check) {
  check.Rows(w.codes, "codes", w.codes_stride, "codes_stride").PerRow(w.absmax, "absmax");
}

}  // namespace

Error QuantizeInt8Weight(const QuantizeInt8WeightParams& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.to, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizeInt8Weight, p, stream);
  cpu::ParallelFor(p.N, p.N * p.K * (2 * SizeOf(p.dtype) + 1), [&](Range rows) {
    ByType(p.dtype, [&](auto t) {
      for (int64_t n = rows.begin; n < rows.end; ++n) QuantizeRow<decltype(t)>(p, n);
    });
  });
  return {};
}

Error DequantizeInt8Weight(const DequantizeInt8WeightParams& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.from, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::DequantizeInt8Weight, p, stream);
  const int64_t row_bytes = p.w_stride * SizeOf(p.dtype);
  cpu::ParallelFor(p.N, p.N * p.K * (SizeOf(p.dtype) + 1), [&](Range rows) {
    DequantizeTile(FrozenTile{.W = {.kind = FrozenKind::kInt8, .nf4 = {}, .int8 = p.from},
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

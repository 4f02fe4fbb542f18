// 8-bit weights on the CPU: checks, and division of rows among threads.
#include "kernels/int8_weight.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/dequantize_rows.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(QuantizeInt8Rows, void(const QuantizeInt8WeightParams&, Range));

namespace {

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
  cpu::ParallelFor(p.N, p.N * p.K * (2 * SizeOf(p.dtype) + 1),
                   [&](Range rows) { QuantizeInt8Rows(p, rows); });
  return {};
}

Error DequantizeInt8Weight(const DequantizeInt8WeightParams& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.from, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::DequantizeInt8Weight, p, stream);
  cpu::DequantizeRows(p, {.kind = FrozenKind::kInt8, .int8 = p.from});
  return {};
}

}  // namespace snug::kernels

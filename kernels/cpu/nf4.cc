// NF4 weights on the CPU: checks, division of rows and blocks among threads, and double
// quantisation, which is scalar: of one number in 64.
#include "kernels/nf4.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/dequantize_rows.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"
#include "kernels/nf4_levels.h"

namespace snug::kernels {

SNUG_VERSIONS(QuantizeNf4Blocks, void(const QuantizeNf4Params&, float*, Range));

namespace {

constexpr int64_t kCostOfElement = 32;  // Of finding a code, in bytes of traffic.

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
  if (nested && p.N > 0) check.Workspace(p.workspace);
  if (!check.ok()) return check.error();
  if (p.N == 0) return {};
  if (stream != nullptr) return cpu::OnStream(cuda::QuantizeNf4, p, stream);
  const int64_t n = p.N * p.K;
  float* absmax = p.to.absmax;
  if (nested) absmax = reinterpret_cast<float*>(static_cast<double*>(p.workspace) + Nf4Groups(n));
  cpu::ParallelFor(Nf4Blocks(n), n * kCostOfElement,
                   [&](Range blocks) { QuantizeNf4Blocks(p, absmax, blocks); });
  if (nested) QuantizeAbsmax(p, absmax);
  return {};
}

Error DequantizeNf4(const DequantizeNf4Params& p, Stream stream) {
  cpu::Check check(p.N, p.K, "K");
  check.Type(p.dtype, "dtype").Rows(p.w, "w", p.w_stride, "w_stride");
  CheckWeight(p.from, check);
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::DequantizeNf4, p, stream);
  cpu::DequantizeRows(p, {.kind = FrozenKind::kNf4, .nf4 = p.from});
  return {};
}

}  // namespace snug::kernels

// Compaction to the trained tokens on the CPU, on one thread: a chunk has few rows.
#include "kernels/valid_tokens.h"

#include "kernels/cpu/check.h"

namespace snug::kernels {

Error ValidTokens(const ValidTokensParams& p, Stream stream) {
  cpu::Check check(p.N, 1);
  check.That(p.N < int64_t{1} << 31, ErrorCode::kBadShape, "N")
      .Type(p.label_type, "label_type")
      .PerRow(p.labels, "labels")
      .PerRow(p.index, "index")
      .Pointer(p.count, "count");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::ValidTokens, p, stream);
  int64_t count = 0;
  for (int64_t i = 0; i < p.N; ++i) {
    const bool ignored = cpu::IndexAt(p.labels, p.label_type, i) == p.ignore_label;
    const bool masked = p.weights != nullptr && p.weights[i] == 0.0f;
    if (!ignored && !masked) p.index[count++] = static_cast<int32_t>(i);
  }
  *p.count = count;
  return {};
}

}  // namespace snug::kernels

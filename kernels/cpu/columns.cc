// Columns by id on the CPU: bound by cache misses, so rows of x are divided among threads and
// nothing is vectorised.
#include "kernels/columns.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {
namespace {

Error CheckColumns(const ColumnsParams& p, Stream stream) {
  cpu::Check check(p.N, p.R, "R");
  check.PerRow(p.ids, "ids")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .PerRow(p.x, "x")
      .That(p.V >= 1 || p.N == 0, ErrorCode::kBadShape, "V")
      .That(p.x_stride >= p.V || p.R == 1, ErrorCode::kBadStride, "x_stride");
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.ids, IndexType::kI32, p.N, p.V), ErrorCode::kBadIndex, "ids");
  }
  return check.error();
}

// Calls element(x, y) for each pair, of one r in the order of i.
template <typename Element>
void ForEachPair(const ColumnsParams& p, const Element& element) {
  cpu::ParallelFor(p.R, 2 * p.N * p.R * static_cast<int64_t>(sizeof(float)), [&](Range rows) {
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      for (int64_t i = 0; i < p.N; ++i) {
        element(p.x[r * p.x_stride + p.ids[i]], p.y[i * p.y_stride + r]);
      }
    }
  });
}

}  // namespace

Error GatherColumns(const ColumnsParams& p, Stream stream) {
  const Error error = CheckColumns(p, stream);
  if (!error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::GatherColumns, p, stream);
  ForEachPair(p, [](const float& x, float& y) { y = x; });
  return {};
}

Error AddColumns(const ColumnsParams& p, Stream stream) {
  const Error error = CheckColumns(p, stream);
  if (!error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::AddColumns, p, stream);
  ForEachPair(p, [](float& x, const float& y) { x += y; });
  return {};
}

}  // namespace snug::kernels

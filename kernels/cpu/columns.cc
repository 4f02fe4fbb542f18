// Columns by id on the CPU: rows of x among threads.
#include "kernels/columns.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(GatherColumnsRows, void(const ColumnsParams&, Range));
SNUG_VERSIONS(AddColumnsRows, void(const ColumnsParams&, Range));
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

int64_t Traffic(const ColumnsParams& p) {
  return 2 * p.N * p.R * static_cast<int64_t>(sizeof(float));
}

}  // namespace

Error GatherColumns(const ColumnsParams& p, Stream stream) {
  const Error error = CheckColumns(p, stream);
  if (!error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::GatherColumns, p, stream);
  cpu::ParallelFor(p.R, Traffic(p), [&](Range rows) { GatherColumnsRows(p, rows); });
  return {};
}

Error AddColumns(const ColumnsParams& p, Stream stream) {
  const Error error = CheckColumns(p, stream);
  if (!error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::AddColumns, p, stream);
  cpu::ParallelFor(p.R, Traffic(p), [&](Range rows) { AddColumnsRows(p, rows); });
  return {};
}

}  // namespace snug::kernels

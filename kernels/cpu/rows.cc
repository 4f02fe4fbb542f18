// Moving rows on the CPU.
#include "kernels/rows.h"

#include <cstring>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(AddRowsRange, void(const AddRowsParams&, Range));
SNUG_VERSIONS(GatherRowsRange, void(const GatherRowsParams&, Range));
SNUG_VERSIONS(CastRowsRange, void(const CastRowsParams&, Range));
namespace {

bool RisesStrictly(const void* index, IndexType type, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    if (cpu::IndexAt(index, type, i) <= cpu::IndexAt(index, type, i - 1)) return false;
  }
  return true;
}

Error CheckScatter(const ScatterRowsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype").Type(p.index_type, "index_type");
  if (p.x != nullptr || !p.zero_others) check.Rows(p.x, "x", p.x_stride, "x_stride");
  check.PerRow(p.index, "index")
      .That(p.y_rows >= 0, ErrorCode::kBadShape, "y_rows")
      .That(p.y != nullptr || p.y_rows == 0, ErrorCode::kNullPointer, "y")
      .That(p.y_stride >= p.C || p.y_rows <= 1, ErrorCode::kBadStride, "y_stride")
      .That(!(p.accumulate && p.zero_others), ErrorCode::kBadValue, "zero_others");
  if (check.ok() && stream == nullptr) {
    check.That(cpu::IndicesInRange(p.index, p.index_type, p.N, p.y_rows) &&
                   RisesStrictly(p.index, p.index_type, p.N),
               ErrorCode::kBadIndex, "index");
  }
  return check.error();
}

// One row of a scatter.
void ScatterRow(const ScatterRowsParams& p, int64_t i) {
  const int64_t element = SizeOf(p.dtype);
  const char* x = static_cast<const char*>(p.x) + i * p.x_stride * element;
  char* y = static_cast<char*>(p.y) + cpu::IndexAt(p.index, p.index_type, i) * p.y_stride * element;
  if (!p.accumulate) {
    memcpy(y, x, p.C * element);
    return;
  }
  const AddRowsParams add = {.a = y,
                             .b = x,
                             .y = y,
                             .N = 1,
                             .C = p.C,
                             .a_dtype = p.dtype,
                             .b_dtype = p.dtype,
                             .y_dtype = p.dtype};
  AddRowsRange(add, Range{0, 1});
}

// Clears the rows of y that no index names.
void ZeroOthers(const ScatterRowsParams& p) {
  const int64_t element = SizeOf(p.dtype);
  int64_t next = 0;  // Of the indices.
  for (int64_t row = 0; row < p.y_rows; ++row) {
    if (next < p.N && cpu::IndexAt(p.index, p.index_type, next) == row) {
      ++next;
      continue;
    }
    memset(static_cast<char*>(p.y) + row * p.y_stride * element, 0, p.C * element);
  }
}

}  // namespace

Error GatherRows(const GatherRowsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.dtype, "dtype")
      .Type(p.index_type, "index_type")
      .Table(p.x, "x", p.x_stride, "x_stride")
      .That(p.x_rows >= 1 || p.N == 0, ErrorCode::kBadShape, "x_rows")
      .That(p.period == 0 || (p.period > 0 && p.N % p.period == 0), ErrorCode::kBadShape, "period")
      .That(p.period == 0 || p.x_rows == p.N, ErrorCode::kBadShape, "x_rows")
      .PerRow(p.index, "index")
      .Rows(p.y, "y", p.y_stride, "y_stride");
  if (check.ok() && stream == nullptr) {
    const int64_t n = p.period > 0 && p.N > 0 ? p.period : p.N;
    const int64_t limit = p.period > 0 ? p.period : p.x_rows;
    check.That(cpu::IndicesInRange(p.index, p.index_type, n, limit), ErrorCode::kBadIndex, "index");
  }
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::GatherRows, p, stream);
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype),
                   [&](Range rows) { GatherRowsRange(p, rows); });
  return {};
}

Error ScatterRows(const ScatterRowsParams& p, Stream stream) {
  if (const Error error = CheckScatter(p, stream); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::ScatterRows, p, stream);
  if (p.zero_others) ZeroOthers(p);
  if (p.x == nullptr) return {};
  cpu::ParallelFor(p.N, 2 * p.N * p.C * SizeOf(p.dtype), [&](Range rows) {
    for (int64_t i = rows.begin; i < rows.end; ++i) ScatterRow(p, i);
  });
  return {};
}

Error CastRows(const CastRowsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.x_dtype, "x_dtype")
      .Type(p.y_dtype, "y_dtype")
      .Rows(p.x, "x", p.x_stride, "x_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .That(p.x != p.y || p.x_dtype == p.y_dtype, ErrorCode::kBadDType, "y_dtype");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::CastRows, p, stream);
  cpu::ParallelFor(p.N, p.N * p.C * (SizeOf(p.x_dtype) + SizeOf(p.y_dtype)),
                   [&](Range rows) { CastRowsRange(p, rows); });
  return {};
}

Error AddRows(const AddRowsParams& p, Stream stream) {
  cpu::Check check(p.N, p.C);
  check.Type(p.a_dtype, "a_dtype")
      .Type(p.b_dtype, "b_dtype")
      .Type(p.y_dtype, "y_dtype")
      .Rows(p.a, "a", p.a_stride, "a_stride")
      .Rows(p.b, "b", p.b_stride, "b_stride")
      .Rows(p.y, "y", p.y_stride, "y_stride")
      .That(p.a != p.y || p.a_dtype == p.y_dtype, ErrorCode::kBadDType, "y_dtype")
      .That(p.b != p.y || p.b_dtype == p.y_dtype, ErrorCode::kBadDType, "y_dtype");
  if (!check.ok()) return check.error();
  if (stream != nullptr) return cpu::OnStream(cuda::AddRows, p, stream);
  const int64_t element = SizeOf(p.a_dtype) + SizeOf(p.b_dtype) + SizeOf(p.y_dtype);
  cpu::ParallelFor(p.N, p.N * p.C * element, [&](Range rows) { AddRowsRange(p, rows); });
  return {};
}

}  // namespace snug::kernels

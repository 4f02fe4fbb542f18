// Inner loop of the bias' gradient.
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {
namespace {

inline constexpr int64_t kBlockRows = 32;      // Rows that one fp32 sum spans.
inline constexpr int64_t kBlockColumns = 512;  // Their sums, 2 KiB and 4 KiB, stay in L1.

template <typename T>
void AddRowsInto(const BiasBackwardParams& p, Range rows, Range columns, float* sums) {
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride) + columns.begin;
    ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
      Store(sums + c, Load(sums + c, part) + Load(dy + c, part), part);
    });
  }
}

template <typename T>
void BackwardTyped(const BiasBackwardParams& p, Range all) {
  for (int64_t first = all.begin; first < all.end; first += kBlockColumns) {
    const Range columns = {first,
                           first + kBlockColumns < all.end ? first + kBlockColumns : all.end};
    const int64_t n = columns.end - columns.begin;
    double totals[kBlockColumns] = {};
    for (int64_t row = 0; row < p.N; row += kBlockRows) {
      float sums[kBlockColumns] = {};
      AddRowsInto<T>(p, {row, row + kBlockRows < p.N ? row + kBlockRows : p.N}, columns, sums);
      for (int64_t c = 0; c < n; ++c) totals[c] += static_cast<double>(sums[c]);
    }
    for (int64_t c = 0; c < n; ++c) {
      float& db = p.db[first + c];
      db = static_cast<float>(totals[c] + (p.accumulate ? static_cast<double>(db) : 0.0));
    }
  }
}

}  // namespace

void BiasBackwardColumns(const BiasBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) { BackwardTyped<decltype(t)>(p, columns); });
}

}  // namespace snug::kernels::SNUG_ISA

// Inner loops that move and add rows.
#include "kernels/rows.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/output.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"
#include "kernels/embedding.h"

namespace snug::kernels::SNUG_ISA {
namespace {

template <typename X, typename Y>
void CastTyped(const CastRowsParams& p, Range rows) {
  const Output out(p.x == p.y ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(Y)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const X* x = RowOf<X>(p.x, i, p.x_stride);
    Y* y = RowOf<Y>(p.y, i, p.y_stride);
    ForVectors(p.C,
               [&](int64_t c, auto part) SNUG_LAMBDA { out.Put(y + c, Load(x + c, part), part); });
  }
}

template <typename A, typename B, typename Y>
void AddTyped(const AddRowsParams& p, Range rows) {
  const bool in_place = p.y == p.a || p.y == p.b;
  const Output out(in_place ? 0 : p.N * p.C * static_cast<int64_t>(sizeof(Y)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const A* a = RowOf<A>(p.a, i, p.a_stride);
    const B* b = RowOf<B>(p.b, i, p.b_stride);
    Y* y = RowOf<Y>(p.y, i, p.y_stride);
    ForVectors(p.C, [&](int64_t c, auto part) SNUG_LAMBDA {
      out.Put(y + c, Load(a + c, part) + Load(b + c, part) * p.scale, part);
    });
  }
}

template <typename T>
void EmbeddingForwardTyped(const EmbeddingForwardParams& p, Range rows) {
  const Output out(p.N * p.C * static_cast<int64_t>(sizeof(T)));
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* W = RowOf<T>(p.W, p.ids[i], p.W_stride);
    T* y = RowOf<T>(p.y, i, p.y_stride);
    if (p.scale == 1.0f) {
      out.Copy(y, W, p.C * static_cast<int64_t>(sizeof(T)));
    } else {
      ForVectors(p.C, [&](int64_t c, auto part)
                          SNUG_LAMBDA { out.Put(y + c, p.scale * Load(W + c, part), part); });
    }
  }
}

template <typename T>
void EmbeddingBackwardTyped(const EmbeddingBackwardParams& p, Range columns) {
  for (int64_t i = 0; i < p.N; ++i) {
    const T* dy = RowOf<T>(p.dy, i, p.dy_stride) + columns.begin;
    float* dW = p.dW + p.ids[i] * p.dW_stride + columns.begin;
    ForVectors(columns.end - columns.begin, [&](int64_t c, auto part) SNUG_LAMBDA {
      Store(dW + c, Load(dW + c, part) + p.scale * Load(dy + c, part), part);
    });
  }
}

}  // namespace

void GatherRowsRange(const GatherRowsParams& p, Range rows) {
  const int64_t element = SizeOf(p.dtype);
  const Output out(p.N * p.C * element);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t begin = p.period == 0 ? 0 : i - i % p.period;
    const int64_t from = begin + IndexAt(p.index, p.index_type, i - begin);
    out.Copy(static_cast<char*>(p.y) + i * p.y_stride * element,
             static_cast<const char*>(p.x) + from * p.x_stride * element, p.C * element);
  }
}

void CastRowsRange(const CastRowsParams& p, Range rows) {
  ByType(p.x_dtype, [&](auto x) {
    ByType(p.y_dtype, [&](auto y) { CastTyped<decltype(x), decltype(y)>(p, rows); });
  });
}

void AddRowsRange(const AddRowsParams& p, Range rows) {
  ByType(p.a_dtype, [&](auto a) {
    ByType(p.b_dtype, [&](auto b) {
      ByType(p.y_dtype, [&](auto y) { AddTyped<decltype(a), decltype(b), decltype(y)>(p, rows); });
    });
  });
}

void EmbeddingForwardRows(const EmbeddingForwardParams& p, Range rows) {
  ByType(p.dtype, [&](auto t) { EmbeddingForwardTyped<decltype(t)>(p, rows); });
}

void EmbeddingBackwardColumns(const EmbeddingBackwardParams& p, Range columns) {
  ByType(p.dtype, [&](auto t) { EmbeddingBackwardTyped<decltype(t)>(p, columns); });
}

}  // namespace snug::kernels::SNUG_ISA

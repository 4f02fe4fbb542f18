// Ops over many tensors at once: their elements are cut into spans, and the spans are worked
// through in groups, so that a thousand small tensors are shared among threads as well as one large
// tensor is.
//
// Spans depend on the sizes of the tensors alone, never on the number of threads.
#ifndef KERNELS_CPU_TENSOR_LIST_H_
#define KERNELS_CPU_TENSOR_LIST_H_

#include <cstdint>

#include "kernels/cpu/parallel.h"

namespace snug::kernels::cpu {

inline constexpr int64_t kSpanElements = 16384;  // 64 KiB of fp32: four operands fit L2.
inline constexpr int64_t kGroupSpans = 256;      // On the stack: 6 KiB.

struct Span {
  int64_t tensor = 0;
  Range elements;
};

// Fills `spans` with what follows `cursor`, moves `cursor` on, and returns how many there are.
template <typename Tensor>
int64_t NextSpans(const Tensor* tensors, int64_t count, Span& cursor, Span* spans) {
  int64_t filled = 0;
  while (filled < kGroupSpans && cursor.tensor < count) {
    const int64_t n = tensors[cursor.tensor].n, begin = cursor.elements.end;
    if (begin >= n) {
      cursor = {cursor.tensor + 1, {0, 0}};
      continue;
    }
    cursor.elements = {begin, n - begin < kSpanElements ? n : begin + kSpanElements};
    spans[filled++] = cursor;
  }
  return filled;
}

// body(span, number of the span in its group) for all spans; after_group(spans in it) after each
// group.
template <typename Tensor, typename Body, typename AfterGroup>
void ForSpans(const Tensor* tensors, int64_t count, Body body, AfterGroup after_group) {
  Span spans[kGroupSpans], cursor;
  while (const int64_t filled = NextSpans(tensors, count, cursor, spans)) {
    int64_t elements = 0;
    for (int64_t i = 0; i < filled; ++i)
      elements += spans[i].elements.end - spans[i].elements.begin;
    ParallelFor(filled, elements * static_cast<int64_t>(sizeof(float)), [&](Range range) {
      for (int64_t i = range.begin; i < range.end; ++i) body(spans[i], i);
    });
    after_group(filled);
  }
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_TENSOR_LIST_H_

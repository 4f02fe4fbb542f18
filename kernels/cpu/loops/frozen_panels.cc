// Tiles of frozen weights as right operands of products: dequantised, rounded and laid out in
// registers, with no matrix in between.
#include <type_traits>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/frozen_values.h"
#include "kernels/cpu/loops/tiles.h"
#include "kernels/cpu/loops/transpose.h"

namespace snug::kernels::SNUG_ISA {
namespace {

// Elements k .. k + 15 of row n of W', of which `left` are there; 0 for the others.
struct Int8Rows {
  static SNUG_INLINE F32x16 At(const FrozenPanels& t, int64_t n, int64_t k, int64_t left) {
    const int8_t* codes = t.W.int8.codes + n * t.W.int8.codes_stride + k;
    const float absmax = t.W.int8.absmax[n];
    if (left >= kLanes) return Int8Lanes(codes, absmax, Whole{});
    return left > 0 ? Int8Lanes(codes, absmax, Part{left}) : F32x16{};
  }
};
struct Nf4Rows {
  static SNUG_INLINE F32x16 At(const FrozenPanels& t, int64_t n, int64_t k, int64_t left) {
    const Nf4Weight& w = t.W.nf4;
    const int64_t e = n * t.K + k, in_block = kNf4Block - e % kNf4Block;
    if (left >= kLanes && in_block >= kLanes && e % 2 == 0) {
      const auto* codes = static_cast<const uint8_t*>(w.codes);
      return Nf4Lanes(codes + e / 2, Nf4Scaled(w, e / kNf4Block));
    }
    return Apart(w, e, left < kLanes ? left : kLanes, in_block);
  }
  // From an odd element on, or over the end of a block.
  static F32x16 Apart(const Nf4Weight& w, int64_t e, int64_t count, int64_t in_block) {
    float values[kLanes] = {};
    const int64_t first = count < in_block ? count : in_block;
    if (first > 0) Nf4Values(w, e, first, values);
    if (count > first) Nf4Values(w, e + first, count - first, values + first);
    return Load(values, Whole{});
  }
};

// Products of pairs are AVX512-BF16's.
#if defined(__AVX512BF16__)
struct Pair {};
SNUG_INLINE F32x16 Paired(F32x16 low, F32x16 high) {
  return As<F32x16>(
      _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(high), reinterpret_cast<__m512>(low)));
}
// Lane i of `low` beside lane i of `high`.
SNUG_INLINE F32x16 Interleaved(F32x16 low, F32x16 high) {
  constexpr U32x16 kFrom = {0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                            0x160006, 0x170007, 0x180008, 0x190009, 0x1a000a, 0x1b000b,
                            0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f};
  return As<F32x16>(_mm512_maskz_permutexvar_epi16(0xffffffff, reinterpret_cast<__m512i>(kFrom),
                                                   reinterpret_cast<__m512i>(Paired(low, high))));
}
#endif

// Words k .. k + 15 of a row of W', whose terms lie along it.
template <typename T, typename Weight>
SNUG_INLINE F32x16 WordsAlong(const FrozenPanels& t, int64_t n, int64_t k) {
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, Pair>) {
    const int64_t first = t.terms.begin + 2 * k, left = t.terms.end - first;
    return Paired(Weight::At(t, n, first, left), Weight::At(t, n, first + kLanes, left - kLanes));
  } else
#endif
  {
    const int64_t first = t.terms.begin + k;
    return Rounded<T>(Weight::At(t, n, first, t.terms.end - first));
  }
}

// Word k of columns c .. c + 15 of W', whose terms lie across its rows.
template <typename T, typename Weight>
SNUG_INLINE F32x16 WordsAcross(const FrozenPanels& t, int64_t c, int64_t k) {
  const int64_t first = t.columns.begin + c, left = t.columns.end - first;
#if defined(__AVX512BF16__)
  if constexpr (std::is_same_v<T, Pair>) {
    const int64_t n = t.terms.begin + 2 * k;
    const F32x16 low = Weight::At(t, n, first, left);
    return Interleaved(low, n + 1 < t.terms.end ? Weight::At(t, n + 1, first, left) : F32x16{});
  } else
#endif
  {
    return Rounded<T>(Weight::At(t, t.terms.begin + k, first, left));
  }
}

template <typename T, typename Weight>
void PackColumns(const FrozenPanels& t, int64_t first, int64_t words, float* panel) {
  const int64_t columns = t.columns.end - t.columns.begin;
  for (int64_t k = 0; k < words; k += kLanes) {
    F32x16 rows[kLanes];
    for (int64_t row = 0; row < kLanes; ++row) {
      rows[row] = first + row < columns ? WordsAlong<T, Weight>(t, t.columns.begin + first + row, k)
                                        : F32x16{};
    }
    Transpose(rows);
    const int64_t count = words - k < kLanes ? words - k : kLanes;
#pragma GCC unroll 16
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      if (lane < count) Store(panel + (k + lane) * kPanel, rows[lane], Whole{});
    }
  }
}

template <typename T, typename Weight>
void PackTyped(const FrozenPanels& t) {
  const int64_t words = WordsOf(t.terms.end - t.terms.begin, t.pairs);
  for (int64_t c = 0; c < t.columns.end - t.columns.begin; c += kLanes) {
    float* panel = t.to + c / kPanel * kPanel * words + c % kPanel;
    if (t.forward) {
      PackColumns<T, Weight>(t, c, words, panel);
      continue;
    }
    for (int64_t k = 0; k < words; ++k) {
      Store(panel + k * kPanel, WordsAcross<T, Weight>(t, c, k), Whole{});
    }
  }
}

template <typename T>
void PackKind(const FrozenPanels& t) {
  if (t.W.kind == FrozenKind::kNf4) {
    PackTyped<T, Nf4Rows>(t);
  } else {
    PackTyped<T, Int8Rows>(t);
  }
}

}  // namespace

void PackFrozen(const FrozenPanels& t) {
#if defined(__AVX512BF16__)
  if (t.pairs) return PackKind<Pair>(t);
#endif
  ByType(t.dtype, [&](auto type) { PackKind<decltype(type)>(t); });
}

}  // namespace snug::kernels::SNUG_ISA

// Products of tiles in registers, and the layouts of their operands. Compiled with fused
// multiply-adds where the instruction set has them (kernels/CMakeLists.txt).
#include <type_traits>

#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/entries.h"
#include "kernels/cpu/loops/transpose.h"
#include "kernels/cpu/loops/vector.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace snug::kernels::SNUG_ISA {
namespace {

// Vectors here are registers. GCC 12 keeps a wider vector in memory, and moves its parts through
// general registers: with AVX2 an F32x16 in the loop below took three times as long. Accumulators
// are as many as fit the registers beside kVectors of b and one of a: 16 of 32 with AVX-512, 8 of
// 16 otherwise. For each column the order of the terms is the same on all.
#if defined(__AVX512F__)
constexpr int kWidth = 16, kRows = 8, kVectors = 2;
#elif defined(__AVX2__)
constexpr int kWidth = 8, kRows = 4, kVectors = 2;
#else
constexpr int kWidth = 4, kRows = 2, kVectors = 4;
#endif
constexpr int kInLanes = static_cast<int>(kLanes) / kWidth;  // Vectors of sixteen columns.
using Vector = float __attribute__((vector_size(4 * kWidth)));
using Bits = int32_t __attribute__((vector_size(4 * kWidth)));

SNUG_INLINE Vector Read(const float* x) {
  Vector v;
  memcpy(&v, x, sizeof v);
  return v;
}

// The word at `a` in all lanes; never touched by arithmetic, as it may be a pair of bf16.
SNUG_INLINE Vector Everywhere(const float* a) {
  int32_t bits;
  memcpy(&bits, a, sizeof(bits));
  return reinterpret_cast<Vector>(Bits{} + bits);
}

template <bool kPairs>
SNUG_INLINE Vector Add(Vector sum, Vector left, Vector right) {
#if defined(__AVX512BF16__)
  if constexpr (kPairs) {
    return reinterpret_cast<Vector>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                     reinterpret_cast<__m512bh>(left),
                                                     reinterpret_cast<__m512bh>(right)));
  }
#endif
  return sum + left * right;
}

template <bool kPairs, int kM, int kN>
SNUG_INLINE void Multiply(const TileProduct& p, const float* a, const float* b, float* c) {
  Vector sums[kM][kN] = {};
  const int64_t a_row = p.a_row, a_term = p.a_term, b_term = p.b_term;
  for (int64_t k = p.terms; k > 0; --k) {
    Vector right[kN];
#pragma GCC unroll 4
    for (int n = 0; n < kN; ++n) right[n] = Read(b + n * kWidth);
#pragma GCC unroll 8
    for (int m = 0; m < kM; ++m) {
      const Vector left = Everywhere(a + m * a_row);
#pragma GCC unroll 4
      for (int n = 0; n < kN; ++n) sums[m][n] = Add<kPairs>(sums[m][n], left, right[n]);
    }
    a += a_term;
    b += b_term;
  }
#pragma GCC unroll 8
  for (int m = 0; m < kM; ++m) {
#pragma GCC unroll 4
    for (int n = 0; n < kN; ++n) {
      float* to = c + m * p.c_row + n * kWidth;
      // A sum of sums loses fewer digits than one chain.
      const Vector sum = p.accumulate ? Read(to) + sums[m][n] : sums[m][n];
      memcpy(to, &sum, sizeof sum);
    }
  }
}

// The rows of a few columns: as many at a time as the registers hold, then half as many.
template <bool kPairs, int kM, int kN>
void Rows(const TileProduct& p, int64_t first, const float* b, float* c) {
  int64_t m = first;
  for (; m + kM <= p.rows; m += kM)
    Multiply<kPairs, kM, kN>(p, p.a + m * p.a_row, b, c + m * p.c_row);
  if constexpr (kM > 1) {
    if (m < p.rows) Rows<kPairs, kM / 2, kN>(p, m, b, c);
  }
}

template <bool kPairs>
void MultiplyTyped(const TileProduct& p) {
  for (int64_t n = 0; n < p.columns;) {
    const float* b = p.b + n / kPanel * p.b_panel + n % kPanel;
    if (kVectors > kInLanes && n + kPanel <= p.columns) {
      Rows<kPairs, kRows, kVectors>(p, 0, b, p.c + n);
      n += kPanel;
    } else {
      Rows<kPairs, kRows, kInLanes>(p, 0, b, p.c + n);
      n += kLanes;
    }
  }
}

// ---- layouts ------------------------------------------------------------------------------------

struct Pair {};  // The words of a LoadTile with pairs.

// Sixteen words of a row from word c on, zero behind its end.
template <typename T>
SNUG_INLINE F32x16 Words(const LoadTile& p, int64_t row, int64_t c) {
  const T* x = RowOf<T>(p.x, row, p.stride) + c;
  const int64_t left = p.width - c;
  return left >= kLanes ? Load(x, Whole{}) : Load(x, Part{left});
}
template <>
SNUG_INLINE F32x16 Words<Pair>(const LoadTile& p, int64_t row, int64_t c) {
  const bf16* x = RowOf<bf16>(p.x, row, p.stride) + 2 * c;
  const int64_t left = p.width - 2 * c;
  if (left >= 2 * kLanes) return FromMemory<F32x16>(x);
  bf16 some[2 * kLanes] = {};
  memcpy(some, x, left * sizeof(bf16));
  return FromMemory<F32x16>(some);
}

template <typename T>
void LoadRows(const LoadTile& p) {
  constexpr int64_t kPer = std::is_same_v<T, Pair> ? 2 : 1;
  constexpr int64_t kAhead = 8, kLine = 64;  // A row begins where the hardware does not expect it.
  const int64_t stride = p.padded_width / kPer, element = SizeOf(p.dtype);
  for (int64_t row = 0; row < p.rows; ++row) {
    if (row + kAhead < p.rows) {
      const auto* ahead = static_cast<const char*>(p.x) + (row + kAhead) * p.stride * element;
      for (int64_t i = 0; i < p.width * element; i += kLine) __builtin_prefetch(ahead + i);
    }
    int64_t c = 0;
    for (; c + kLanes <= stride; c += kLanes)
      Store(p.to + row * stride + c, Words<T>(p, row, c), Whole{});
    if (c < stride) Store(p.to + row * stride + c, Words<T>(p, row, c), Part{stride - c});
  }
}

// Rows 2k and 2k + 1 become words.
void LoadTermPairs(const LoadTile& p) {
  for (int64_t row = 0; row < p.rows; row += 2) {
    const bf16* x = RowOf<bf16>(p.x, row, p.stride);
    const bf16* y = x + p.stride;
    ForVectors(p.width, [&](int64_t c, auto part) SNUG_LAMBDA {
      // fp32 of a bf16 is its bits in the upper half.
      const U32x16 low = As<U32x16>(Load(x + c, part)) >> 16;
      U32x16 high{};
      if (row + 1 < p.rows) high = As<U32x16>(Load(y + c, part));
      Store(p.to + row / 2 * p.padded_width + c, As<F32x16>(low | high), Whole{});
    });
  }
}

template <typename T>
void LoadColumns(const LoadTile& p) {
  const int64_t words = WordsOf(p.width, std::is_same_v<T, Pair>);
  for (int64_t first = 0; first < p.rows; first += kLanes) {
    float* panel = p.to + first / kPanel * kPanel * words + first % kPanel;
    for (int64_t c = 0; c < words; c += kLanes) {
      F32x16 rows[kLanes];
#pragma GCC unroll 16
      for (int64_t row = 0; row < kLanes; ++row)
        rows[row] = first + row < p.rows ? Words<T>(p, first + row, c) : F32x16{};
      Transpose(rows);
      const int64_t count = words - c < kLanes ? words - c : kLanes;
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        if (lane < count) Store(panel + (c + lane) * kPanel, rows[lane], Whole{});
      }
    }
  }
  if ((p.rows + kLanes - 1) / kLanes % 2 == 0) return;
  float* panel = p.to + p.rows / kPanel * kPanel * words + kLanes;
  for (int64_t c = 0; c < words; ++c) Store(panel + c * kPanel, F32x16{}, Whole{});
}

template <typename T>
void LoadTyped(const LoadTile& p) {
  if (p.form == TileForm::kColumns) {
    LoadColumns<T>(p);
  } else if (std::is_same_v<T, Pair> && p.form == TileForm::kTerms) {
    LoadTermPairs(p);
  } else {
    LoadRows<T>(p);
  }
}

template <typename T>
void StoreRowsTyped(const StoreTile& p) {
  for (int64_t row = 0; row < p.rows; ++row) {
    const float* x = p.x + row * p.padded_width;
    T* y = RowOf<T>(p.y, row, p.stride);
    const float factor = p.row_factor == nullptr ? p.factor : p.factor * p.row_factor[row];
    ForVectors(p.width, [&](int64_t c, auto part)
                            SNUG_LAMBDA { Store(y + c, Load(x + c, part) * factor, part); });
  }
}

}  // namespace

void MultiplyTile(const TileProduct& p) {
#if defined(__AVX512BF16__)
  if (p.pairs) return MultiplyTyped<true>(p);
#endif
  MultiplyTyped<false>(p);
}

void LoadTileForm(const LoadTile& p) {
  if (p.pairs) return LoadTyped<Pair>(p);
  ByType(p.dtype, [&](auto t) { LoadTyped<decltype(t)>(p); });
}

void StoreTileRows(const StoreTile& p) {
  ByType(p.dtype, [&](auto t) { StoreRowsTyped<decltype(t)>(p); });
}

}  // namespace snug::kernels::SNUG_ISA

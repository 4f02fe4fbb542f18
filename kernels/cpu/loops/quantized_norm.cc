// Inner loops of norms with xhat as codes. A row's xhat is first written where its z will be, by
// the plain op, so that it has the plain op's bits; from there, still in cache, it is quantised and
// becomes z, block by block of 128.
#include "kernels/quantized_norm.h"

#include "kernels/cpu/loops/column_sums.h"
#include "kernels/cpu/loops/dispatch.h"
#include "kernels/cpu/loops/quantized.h"
#include "kernels/cpu/loops/range.h"
#include "kernels/cpu/loops/vector.h"

namespace snug::kernels::SNUG_ISA {

void NormalizeForwardRows(const NormalizeForwardParams& p, Range rows);

namespace {

// gamma or beta from column `begin` on, as the rest of its row is.
SNUG_INLINE void LoadColumns(const void* x, DType dtype, const BlockAt& at, Floats128& to) {
  ByType(dtype, [&](auto t) { LoadBlock(static_cast<const decltype(t)*>(x), at, to); });
}

// offset + gamma of a block, 1 without gamma.
template <typename Params>
SNUG_INLINE void LoadFactors(const Params& p, const BlockAt& at, Floats128& factors) {
  if (p.gamma == nullptr) {
    for (float& factor : factors.at) factor = 1.0f;
    return;
  }
  LoadColumns(p.gamma, p.gamma_dtype, at, factors);
  for (float& factor : factors.at) factor = p.offset + factor;
}

// xhat, where z will be, to codes and z.
template <typename T>
void FinishBlock(const QuantizedNormForwardParams& p, const BlockAt& at) {
  T* z = RowOf<T>(p.norm.z, at.row, p.norm.z_stride);
  Floats128 x, factors, beta = {};
  LoadBlock(z, at, x);
  QuantizeBlock(p.xhat, p.dither, at, x);
  LoadFactors(p.norm, at, factors);
  if (p.norm.beta != nullptr) LoadColumns(p.norm.beta, p.norm.gamma_dtype, at, beta);
  ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
    F32x16 v = Load(x.at + c, Whole{}) * Load(factors.at + c, Whole{});
    if (p.norm.beta != nullptr) v += Load(beta.at + c, Whole{});
    Store(x.at + c, v, Whole{});
  });
  StoreBlock(x, at, z);
}

// dxhat of a block, 0 behind the row's end, and xhat.
template <typename T>
void LoadGradient(const QuantizedNormBackwardParams& p, const BlockAt& at, Floats128& dxhat,
                  Floats128& xhat) {
  Floats128 factors;
  LoadBlock(RowOf<T>(p.norm.dxhat, at.row, p.norm.dxhat_stride), at, dxhat);
  LoadFactors(p.norm, at, factors);
  for (int64_t c = 0; c < kRangeBlock; ++c) {
    dxhat.at[c] = c < at.count() ? dxhat.at[c] * factors.at[c] : 0.0f;
  }
  DequantizeBlock(p.xhat, at, xhat);
  for (int64_t c = at.count(); c < kRangeBlock; ++c) xhat.at[c] = 0.0f;
}

// T: of dxhat, S: of dx.
template <typename T, typename S>
void BackwardRow(const QuantizedNormBackwardParams& p, int64_t i) {
  const NormalizeBackwardParams& plain = p.norm;
  Floats128 dxhat, xhat;
  double dots = 0.0, sums = 0.0;
  ForBlocks(i, plain.C, [&](const BlockAt& at) {
    LoadGradient<T>(p, at, dxhat, xhat);
    F32x16 dot{}, sum{};
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      dot += Load(dxhat.at + c, Whole{}) * Load(xhat.at + c, Whole{});
      sum += Load(dxhat.at + c, Whole{});
    });
    dots += static_cast<double>(SumLanes(dot));
    sums += static_cast<double>(SumLanes(sum));
  });
  const float mean = static_cast<float>(dots / static_cast<double>(plain.C));
  const float shift =
      plain.norm == Norm::kRms ? 0.0f : static_cast<float>(sums / static_cast<double>(plain.C));
  const float r = plain.r[i];
  S* dx = RowOf<S>(plain.dx, i, plain.dx_stride);
  ForBlocks(i, plain.C, [&](const BlockAt& at) {
    LoadGradient<T>(p, at, dxhat, xhat);
    Floats128 before = {};
    if (plain.accumulate) LoadBlock(dx, at, before);
    ForBlockVectors([&](int64_t c) SNUG_LAMBDA {
      const F32x16 g = Load(dxhat.at + c, Whole{}), x = Load(xhat.at + c, Whole{});
      F32x16 v = ((g - shift) - x * mean) * r;
      if (plain.accumulate) v += Load(before.at + c, Whole{});
      Store(dxhat.at + c, v, Whole{});
    });
    StoreBlock(dxhat, at, dx);
  });
}

// A block of rows and columns: adds dz * xhat into sums[0] and dz into sums[1].
template <typename T>
void AddRowsToSums(const QuantizedNormSumsParams& p, Range rows, Range columns,
                   float (&sums)[2][kBlockColumns]) {
  static_assert(kBlockColumns % kRangeBlock == 0);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    for (int64_t c = columns.begin; c < columns.end; c += kRangeBlock) {
      const BlockAt at = {i, p.affine.C, c / kRangeBlock};
      Floats128 dz, xhat;
      LoadBlock(RowOf<T>(p.affine.dz, i, p.affine.dz_stride), at, dz);
      DequantizeBlock(p.xhat, at, xhat);
      float *gamma = sums[0] + (c - columns.begin), *beta = sums[1] + (c - columns.begin);
      ForBlockVectors([&](int64_t k) SNUG_LAMBDA {
        const F32x16 g = Load(dz.at + k, Whole{});
        Store(gamma + k, Load(gamma + k, Whole{}) + g * Load(xhat.at + k, Whole{}), Whole{});
        Store(beta + k, Load(beta + k, Whole{}) + g, Whole{});
      });
    }
  }
}

}  // namespace

void QuantizedNormForwardRows(const QuantizedNormForwardParams& p, Range rows) {
  NormalizeForwardParams plain = p.norm;
  plain.xhat = p.norm.z;
  plain.xhat_stride = p.norm.z_stride;
  plain.z = nullptr;
  plain.N = 1;  // Of an output that is read again at once.
  ByType(plain.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      NormalizeForwardRows(plain, Range{i, i + 1});
      ForBlocks(i, plain.C, [&](const BlockAt& at) { FinishBlock<decltype(t)>(p, at); });
    }
  });
}

void QuantizedNormBackwardRows(const QuantizedNormBackwardParams& p, Range rows) {
  ByType(p.norm.dtype, [&](auto t) {
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      if (p.norm.wide) {
        BackwardRow<decltype(t), float>(p, i);
      } else {
        BackwardRow<decltype(t), decltype(t)>(p, i);
      }
    }
  });
}

void QuantizedNormSumsBlocks(const QuantizedNormSumsParams& p, Range blocks) {
  float* const results[] = {p.affine.dgamma, p.affine.dbeta};
  const int64_t end = blocks.end * kRangeBlock;
  const Range all = {blocks.begin * kRangeBlock, end < p.affine.C ? end : p.affine.C};
  ByType(p.affine.dtype, [&](auto t) {
    ColumnSumSets(p.affine.N, all, results, p.affine.accumulate,
                  [&](Range rows, Range columns, auto& sums) {
                    AddRowsToSums<decltype(t)>(p, rows, columns, sums);
                  });
  });
}

}  // namespace snug::kernels::SNUG_ISA

// bf16 products where the CPU or oneDNN has none: blocks of the operands are converted to fp32 and
// multiplied there. Blocks are large enough that the conversions do not count, and small enough to
// stay in the cache.
#include <algorithm>
#include <memory>

#include "kernels/rows.h"
#include "worker/execute/gemm/paths.h"
#include "worker/execute/ops/kernel_call.h"

namespace snug::execute {
namespace {

constexpr int64_t kBlock = 512;  // Elements on each side.

struct Buffers {
  std::unique_ptr<float[]> a{new float[kBlock * kBlock]};
  std::unique_ptr<float[]> b{new float[kBlock * kBlock]};
};

// A part of an operand, as its rows lie.
struct Range {
  int64_t row, column, rows, columns;
};

// Rows [row, row + rows) and as many columns of `from`, dense and in fp32.
void Convert(const void* from, int64_t stride, const Range& range, float* to) {
  const auto* values = static_cast<const uint16_t*>(from) + range.row * stride + range.column;
  Check("CastRows", kernels::CastRows({.x = values,
                                       .y = to,
                                       .N = range.rows,
                                       .C = range.columns,
                                       .x_stride = stride,
                                       .y_stride = range.columns,
                                       .x_dtype = kernels::DType::kBF16,
                                       .y_dtype = kernels::DType::kF32},
                                      nullptr));
}

// Rows [i, i + m) and columns [j, j + n) of the result.
void ResultBlock(const GemmCall& call, int64_t i, int64_t j, Buffers& buffers) {
  const int64_t m = std::min(kBlock, call.m - i), n = std::min(kBlock, call.n - j);
  for (int64_t l = 0; l < call.k; l += kBlock) {
    const int64_t k = std::min(kBlock, call.k - l);
    const Range a = call.a_transposed ? Range{l, i, k, m} : Range{i, l, m, k};
    const Range b = call.b_transposed ? Range{j, l, n, k} : Range{l, j, k, n};
    Convert(call.a, call.a_stride, a, buffers.a.get());
    Convert(call.b, call.b_stride, b, buffers.b.get());
    GemmCall block = call;
    block.dtype = program::DType::kF32;
    block.a = buffers.a.get();
    block.b = buffers.b.get();
    block.c = static_cast<float*>(call.c) + i * call.c_stride + j;
    block.m = m;
    block.n = n;
    block.k = k;
    block.a_stride = a.columns;
    block.b_stride = b.columns;
    block.add = call.add || l > 0;
    Gemm(block);
  }
}

}  // namespace

bool ConvertedGemm(const GemmCall& call) {
  if (call.dtype != program::DType::kBF16) return false;
  thread_local Buffers buffers;
  for (int64_t i = 0; i < call.m; i += kBlock) {
    for (int64_t j = 0; j < call.n; j += kBlock) ResultBlock(call, i, j, buffers);
  }
  return true;
}

}  // namespace snug::execute

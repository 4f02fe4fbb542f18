// Linear layers over frozen weights on the CPU: tiles of `out` are handed out to threads; W' is
// dequantised into the thread's workspace a tile at a time, as the tiles' product wants it.
#include "kernels/frozen_linear.h"

#include <algorithm>

#include "kernels/cpu/check.h"
#include "kernels/cpu/loops/frozen_tile.h"
#include "kernels/cpu/loops/versions.h"
#include "kernels/cpu/parallel.h"

namespace snug::kernels {

SNUG_VERSIONS(PackFrozen, void(const FrozenPanels&));

namespace {

constexpr int64_t kThreadBytes = FrozenLinearWorkspace(1);

// out (M, columns) = in (M, terms) times W', whose rows are the columns (forward) or the terms.
struct Job {
  const FrozenLinearParams& p;
  bool forward;
  int64_t terms, columns;
  bool pairs;

  int64_t row_blocks() const { return (p.M + kFrozenRows - 1) / kFrozenRows; }
  int64_t column_blocks() const { return (columns + kFrozenColumns - 1) / kFrozenColumns; }
};

// A thread's workspace.
struct Tiles {
  float *out, *in, *right;
  explicit Tiles(float* base)
      : out(base), in(out + kFrozenRows * kFrozenColumns), right(in + kFrozenRows * kFrozenTerms) {}
};

// What the tiles' forms pad rows to.
int64_t Padded(int64_t elements) { return (elements + 15) / 16 * 16; }

Range RangeAt(int64_t begin, int64_t most, int64_t end) {
  return {begin, std::min(begin + most, end)};
}

void MultiplyTerms(const Job& job, Range rows, Range columns, Range terms, const Tiles& tiles) {
  const FrozenLinearParams& p = job.p;
  const int64_t k = terms.end - terms.begin, words = WordsOf(k, job.pairs);
  const char* in = static_cast<const char*>(p.in);
  BestLoops().load({.x = in + (rows.begin * p.in_stride + terms.begin) * SizeOf(p.dtype),
                    .stride = p.in_stride,
                    .dtype = p.dtype,
                    .pairs = job.pairs,
                    .form = TileForm::kRows,
                    .rows = rows.end - rows.begin,
                    .width = k,
                    .padded_width = Padded(k),
                    .to = tiles.in});
  PackFrozen(FrozenPanels{.W = p.W,
                          .K = p.K,
                          .forward = job.forward,
                          .columns = columns,
                          .terms = terms,
                          .dtype = p.dtype,
                          .pairs = job.pairs,
                          .to = tiles.right});
  const int64_t n = columns.end - columns.begin;
  BestLoops().multiply({.a = tiles.in,
                        .a_row = WordsOf(Padded(k), job.pairs),
                        .a_term = 1,
                        .b = tiles.right,
                        .b_term = kPanel,
                        .b_panel = words * kPanel,
                        .c = tiles.out,
                        .c_row = kFrozenColumns,
                        .rows = rows.end - rows.begin,
                        .columns = Padded(n),
                        .terms = words,
                        .accumulate = terms.begin > 0,
                        .pairs = job.pairs});
}

void RunUnit(const Job& job, int64_t unit, const Tiles& tiles) {
  const FrozenLinearParams& p = job.p;
  const Range rows = RangeAt(unit % job.row_blocks() * kFrozenRows, kFrozenRows, p.M);
  const Range columns =
      RangeAt(unit / job.row_blocks() * kFrozenColumns, kFrozenColumns, job.columns);
  for (int64_t k = 0; k < job.terms; k += kFrozenTerms) {
    MultiplyTerms(job, rows, columns, RangeAt(k, kFrozenTerms, job.terms), tiles);
  }
  char* out = static_cast<char*>(p.out);
  BestLoops().store_rows({.x = tiles.out,
                          .padded_width = kFrozenColumns,
                          .y = out + (rows.begin * p.out_stride + columns.begin) * SizeOf(p.dtype),
                          .stride = p.out_stride,
                          .dtype = p.dtype,
                          .rows = rows.end - rows.begin,
                          .width = columns.end - columns.begin});
}

Error CheckArguments(const FrozenLinearParams& p, bool forward, Stream stream) {
  const int64_t in_columns = forward ? p.K : p.N, out_columns = forward ? p.N : p.K;
  cpu::Check check(p.M, in_columns, forward ? "K" : "N", "M");
  check.That(out_columns >= 1, ErrorCode::kBadShape, forward ? "N" : "K")
      .Type(p.dtype, "dtype")
      .Rows(p.in, "in", p.in_stride, "in_stride")
      .PerRow(p.out, "out")
      .That(p.out_stride >= out_columns || p.M <= 1, ErrorCode::kBadStride, "out_stride")
      .That(p.W.kind <= FrozenKind::kInt8, ErrorCode::kBadDType, "kind");
  if (p.W.kind == FrozenKind::kNf4) {
    const Nf4Weight& w = p.W.nf4;
    check.PerRow(w.codes, "codes").PerRow(w.absmax, "absmax");
    check.That((w.absmax_codes == nullptr) == (w.offset == nullptr), ErrorCode::kNullPointer,
               "offset");
  } else {
    check.PerRow(p.W.int8.codes, "codes")
        .PerRow(p.W.int8.absmax, "absmax")
        .That(p.W.int8.codes_stride >= p.K || p.N <= 1, ErrorCode::kBadStride, "codes_stride");
  }
  if (stream == nullptr) {
    check.PerRow(p.workspace, "workspace")
        .That(p.workspace_bytes >= kThreadBytes || p.M == 0, ErrorCode::kBadShape,
              "workspace_bytes");
  }
  return check.error();
}

Error Run(const FrozenLinearParams& p, bool forward) {
  const bool pairs = p.dtype == DType::kBF16 && BestLoops().multiplies_pairs;
  const Job job = {p, forward, forward ? p.K : p.N, forward ? p.N : p.K, pairs};
  if (p.M == 0) return {};
  cpu::ParallelUnits(job.row_blocks() * job.column_blocks(), p.workspace_bytes / kThreadBytes,
                     [&](int64_t unit, int64_t thread) {
                       auto* base = static_cast<char*>(p.workspace) + thread * kThreadBytes;
                       RunUnit(job, unit, Tiles(reinterpret_cast<float*>(base)));
                     });
  return {};
}

}  // namespace

Error FrozenLinearForward(const FrozenLinearParams& p, Stream stream) {
  if (const Error error = CheckArguments(p, true, stream); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::FrozenLinearForward, p, stream);
  return Run(p, true);
}

Error FrozenLinearBackward(const FrozenLinearParams& p, Stream stream) {
  if (const Error error = CheckArguments(p, false, stream); !error.ok()) return error;
  if (stream != nullptr) return cpu::OnStream(cuda::FrozenLinearBackward, p, stream);
  return Run(p, false);
}

}  // namespace snug::kernels

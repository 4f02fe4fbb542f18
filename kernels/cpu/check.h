// Checks of an op's arguments. The first error found is the one returned.
#ifndef KERNELS_CPU_CHECK_H_
#define KERNELS_CPU_CHECK_H_

#include <cstdint>

#include "kernels/activation.h"
#include "kernels/by_type.h"
#include "kernels/cuda/entries.h"
#include "kernels/philox.h"
#include "kernels/types.h"

namespace snug::kernels::cpu {

// Whether a pointer may be null: an operand that is not wanted, or not needed then.
enum class Presence : uint8_t { kRequired, kOptional };

class Check {
 public:
  // Of an op on N rows of C elements; `width` and `height` are the names of C and N.
  Check(int64_t N, int64_t C, const char* width = "C", const char* height = "N") : N_(N), C_(C) {
    That(N >= 0, ErrorCode::kBadShape, height);
    That(C >= 1, ErrorCode::kBadShape, width);
  }

  Check& That(bool good, ErrorCode code, const char* parameter) {
    if (!good && error_.ok()) error_ = {code, parameter};
    return *this;
  }
  Check& Type(DType dtype, const char* name) {
    return That(dtype <= DType::kF16, ErrorCode::kBadDType, name);
  }
  Check& Type(IndexType type, const char* name) {
    return That(type == IndexType::kI32 || type == IndexType::kI64, ErrorCode::kBadDType, name);
  }
  // A vector with one element per row.
  Check& PerRow(const void* x, const char* name) {
    return That(x != nullptr || N_ == 0, ErrorCode::kNullPointer, name);
  }
  // A vector that is there whatever N is.
  Check& Pointer(const void* x, const char* name) {
    return That(x != nullptr, ErrorCode::kNullPointer, name);
  }
  // Workspace that holds numbers of 8 bytes.
  Check& Workspace(const void* x) {
    return Pointer(x, "workspace")
        .That(reinterpret_cast<uintptr_t>(x) % 8 == 0, ErrorCode::kBadValue, "workspace");
  }
  // The stride of the N rows of C elements, and their pointer. With fewer than two rows there is
  // nothing to stride over.
  Check& Rows(const void* x, const char* name, int64_t stride, const char* stride_name) {
    PerRow(x, name);
    return That(stride >= C_ || N_ <= 1, ErrorCode::kBadStride, stride_name);
  }
  // The same for a table of `rows` rows that N rows index.
  Check& Table(const void* x, const char* name, int64_t stride, const char* stride_name) {
    PerRow(x, name);
    return That(stride >= C_ || N_ == 0, ErrorCode::kBadStride, stride_name);
  }

  // N rows of codes of `bits` bits (kernels/codes.h), C each; strides are in bytes.
  Check& Bytes(const void* x, const char* name, int64_t stride, int bits, const char* stride_name) {
    PerRow(x, name);
    return That(stride >= (C_ * bits + 7) / 8 || N_ <= 1, ErrorCode::kBadStride, stride_name);
  }
  Check& Of(Activation activation, const char* name) {
    return That(activation <= Activation::kTanh, ErrorCode::kBadValue, name);
  }
  Check& Of(const TwoBit& p, const char* name) {
    return That(p.threshold[0] < p.threshold[1] && p.threshold[1] < p.threshold[2],
                ErrorCode::kBadValue, name);
  }

  // Rows from `first_row` of the micro-batch on draw `blocks_per_row` random blocks each.
  Check& Draws(const RandomSite& site, int64_t first_row, int64_t blocks_per_row) {
    That(site.op < kMaxRandomOps, ErrorCode::kBadValue, "site.op");
    That(first_row >= 0, ErrorCode::kBadValue, "first_row");
    if (!ok()) return *this;  // From here on sizes are good.
    const int64_t rows = static_cast<int64_t>(kMaxRandomBlocks) / blocks_per_row;
    return That(N_ <= rows && first_row <= rows - N_, ErrorCode::kBadShape, "N");
  }

  bool ok() const { return error_.ok(); }
  Error error() const { return error_; }

 private:
  int64_t N_, C_;
  Error error_;
};

// Runs an op on a stream, if this build has its CUDA side: else `op`, a weak symbol, is null.
template <typename Params>
Error OnStream(Error (*op)(const Params&, Stream), const Params& p, Stream stream) {
  return op == nullptr ? Error{ErrorCode::kNoDevice, "stream"} : op(p, stream);
}

using kernels::IndexAt;

// Whether every index lies in [0, limit).
inline bool IndicesInRange(const void* index, IndexType type, int64_t n, int64_t limit) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = IndexAt(index, type, i);
    if (value < 0 || value >= limit) return false;
  }
  return true;
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_CHECK_H_

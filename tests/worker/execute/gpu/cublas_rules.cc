#include "tests/worker/execute/gpu/cublas_rules.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace snug::execute {
namespace {

using program::DType;

std::string Refused(absl::string_view status, absl::string_view why) {
  return absl::StrCat("cublasGemmEx_64: CUBLAS_STATUS_", status, ": ", why);
}

// A row-major matrix is a column-major one whose columns are its rows.
struct Stored {
  const char* name;
  const void* data;
  int64_t width, stride;
  DType dtype;
};

std::string RefusalOf(const Stored& matrix) {
  if (matrix.stride < std::max<int64_t>(1, matrix.width))
    return Refused("INVALID_VALUE", absl::StrCat("the leading dimension of ", matrix.name, ", ",
                                                 matrix.stride, ", is below ", matrix.width));
  if (matrix.data == nullptr)
    return Refused("INVALID_VALUE", absl::StrCat(matrix.name, " is null"));
  const auto size = static_cast<uintptr_t>(program::SizeOf(matrix.dtype));
  if (reinterpret_cast<uintptr_t>(matrix.data) % size != 0)
    return Refused("EXECUTION_FAILED", absl::StrCat(matrix.name, " is a misaligned address"));
  return "";
}

}  // namespace

std::string CublasRefusal(const GemmCall& call) {
  if (call.m < 0 || call.n < 0 || call.k < 0)
    return Refused("INVALID_VALUE", "a dimension is negative");
  // A and B in fp32: C in fp32. In bf16: C in bf16 or fp32.
  if (call.dtype == DType::kF32 && call.c_dtype != DType::kF32)
    return Refused("NOT_SUPPORTED", "fp32 operands into bf16");
  for (const Stored& matrix :
       {Stored{"a", call.a, call.a_transposed ? call.m : call.k, call.a_stride, call.dtype},
        Stored{"b", call.b, call.b_transposed ? call.k : call.n, call.b_stride, call.dtype},
        Stored{"c", call.c, call.n, call.c_stride, call.c_dtype}}) {
    const std::string refusal = RefusalOf(matrix);
    if (!refusal.empty()) return refusal;
  }
  return "";
}

}  // namespace snug::execute

// Matrix products of rows in memory, each on the path that is fastest for its kind on this CPU.
//
// Invariants: a path takes nothing from ATen's allocator; what it takes by itself is bounded and
// part of the context that a node measures when it starts (train/measure_context.h). The same call
// under the same choice, threads and libraries gives the same bits. Callable inside a parallel
// region, where it runs on the calling thread alone.
//
// | operands | paths                                                                       |
// |----------|-----------------------------------------------------------------------------|
// | fp32     | aten (MKL), onednn                                                          |
// | bf16     | onednn; converted, in fp32, where the CPU or the library has no bf16 product |
//
// These are the CPU's; a GPU has cuBLAS (gpu/). Results here are fp32; whoever wants bf16 rounds
// them once (ops/products.h). Not done here: both operands transposed; batches (callers loop).
#ifndef WORKER_EXECUTE_GEMM_H_
#define WORKER_EXECUTE_GEMM_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/program/model_config.h"

namespace snug::execute {

// c (+)= alpha a b, accumulated in fp32. Strides: elements from one row to the next, as the rows
// lie.
struct GemmCall {
  const void* a = nullptr;  // (m, k); transposed: rows of (k, m).
  const void* b = nullptr;  // (k, n); transposed: rows of (n, k).
  void* c = nullptr;        // (m, n)
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0, c_stride = 0;
  bool a_transposed = false, b_transposed = false;
  program::DType dtype = program::DType::kF32;    // Of a and b.
  program::DType c_dtype = program::DType::kF32;  // On the CPU always.
  float alpha = 1.0f;
  bool add = false;
};

// What a thread's buffers of packed operands take at most, by themselves: 21 MiB on two threads for
// 512 x 14336 x 4096 in bf16, less for all other shapes tried.
inline constexpr int64_t kGemmBufferBytes = 11 << 20;

// Throws std::runtime_error where a library refuses.
void Gemm(const GemmCall& call);

enum class GemmPath : uint8_t { kOneDnn, kAten, kConverted };
inline constexpr int kGemmPaths = 3;

// Kinds of products between which the fastest path differs: by number type, by shape (one side
// below program::kNarrowSide, as an adapter's), and by what is transposed (neither, b, a).
inline constexpr int kGemmTypes = 2, kGemmShapes = 2, kGemmForms = 3;
inline constexpr int kGemmKinds = kGemmTypes * kGemmShapes * kGemmForms;
int GemmKind(const GemmCall& call);

// The path of each kind. The one in use is the process's: set before the first product, never
// between two steps of one attempt.
struct GemmChoice {
  std::array<GemmPath, kGemmKinds> path;
  // oneDNN for all: what is used when nothing was measured.
  static GemmChoice Default();
};

void UseGemmChoice(const GemmChoice& choice);
const GemmChoice& GemmChoiceInUse();

// Whether a GPU may round operands of fp32 to TF32, 10 bits behind the point, for its tensor cores:
// the process's as well, false at first. The CPU does not heed it.
void UseTf32(bool use);
bool Tf32InUse();

// Times the paths of each kind on this process's threads: about half a second on two cores.
GemmChoice MeasureGemmChoice();

// "1:" and one path's letter per kind, in order. Parsing refuses another length or letter.
std::string GemmChoiceText(const GemmChoice& choice);
absl::StatusOr<GemmChoice> ParseGemmChoice(absl::string_view text);

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_GEMM_H_

// oneDNN's row-major BLAS calls, from the system's library.
//
// It is loaded by name, its own symbols first: LibTorch carries another oneDNN whose functions it
// hides, but not the instances of std::call_once that set their kernels up; linked side by side,
// the one library would set up the other's.
#include <dlfcn.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "worker/execute/gemm/paths.h"

namespace snug::execute {
namespace {

// dnnl.h, version 2: status, and the calls that take row-major matrices. The second is exported but
// not declared there.
constexpr int kSuccess = 0, kUnimplemented = 3;
using Sgemm = int (*)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                      const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
                      float* c, int64_t ldc);
using Bf16Gemm = int (*)(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha,
                         const void* a, int64_t lda, const void* b, int64_t ldb, float beta,
                         float* c, int64_t ldc);

struct Library {
  Sgemm sgemm = nullptr;
  Bf16Gemm bf16_gemm = nullptr;
};

Library Load() {
  Library library;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They refuse such a load.
  void* handle = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (handle == nullptr) return library;
  library.sgemm = reinterpret_cast<Sgemm>(dlsym(handle, "dnnl_sgemm"));
  library.bf16_gemm = reinterpret_cast<Bf16Gemm>(dlsym(handle, "dnnl_gemm_bf16bf16f32"));
#endif
  return library;
}

int Call(const Library& library, const GemmCall& call) {
  const char a_form = call.a_transposed ? 'T' : 'N', b_form = call.b_transposed ? 'T' : 'N';
  const float beta = call.add ? 1.0f : 0.0f;
  if (call.dtype == program::DType::kBF16) {
    if (library.bf16_gemm == nullptr) return kUnimplemented;
    return library.bf16_gemm(a_form, b_form, call.m, call.n, call.k, call.alpha, call.a,
                             call.a_stride, call.b, call.b_stride, beta,
                             static_cast<float*>(call.c), call.c_stride);
  }
  if (library.sgemm == nullptr) return kUnimplemented;
  return library.sgemm(a_form, b_form, call.m, call.n, call.k, call.alpha,
                       static_cast<const float*>(call.a), call.a_stride,
                       static_cast<const float*>(call.b), call.b_stride, beta,
                       static_cast<float*>(call.c), call.c_stride);
}

}  // namespace

bool OneDnnGemm(const GemmCall& call) {
  static const Library library = Load();
  const int status = Call(library, call);
  if (status == kUnimplemented) return false;  // No such library, or no such product on this CPU.
  if (status == kSuccess) return true;
  throw std::runtime_error("oneDNN refused a product: status " + std::to_string(status));
}

}  // namespace snug::execute

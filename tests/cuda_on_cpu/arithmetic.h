// Emulated CUDA: arithmetic intrinsics, and loads and stores with hints.
#ifndef TESTS_CUDA_ON_CPU_ARITHMETIC_H_
#define TESTS_CUDA_ON_CPU_ARITHMETIC_H_

#include <cmath>
#include <cstdint>
#include <cstring>

// Rounded once each and never contracted: emulated sources are compiled with -ffp-contract=off.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rd(float a) { return static_cast<int>(std::floor(a)); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a == 0 ? 32 : __builtin_clz(static_cast<unsigned>(a)); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(uint64_t{a} * b >> 32);
}
template <typename To, typename From>
inline To SnugBitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}
inline unsigned __float_as_uint(float a) { return SnugBitCast<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return SnugBitCast<float>(a); }
inline int __float_as_int(float a) { return SnugBitCast<int>(a); }
inline float __int_as_float(int a) { return SnugBitCast<float>(a); }
template <typename T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

// ---- memory: the hints change nothing here ------------------------------------------------------
template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline void __stcs(T* p, T value) {
  *p = value;
}
template <typename T>
inline void __stcg(T* p, T value) {
  *p = value;
}

#endif  // TESTS_CUDA_ON_CPU_ARITHMETIC_H_

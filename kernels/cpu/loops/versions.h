// An op's own file (kernels/cpu/<op>.cc) checks its arguments and divides the work among threads.
// Its inner loops (kernels/cpu/loops/<op>.cc) take checked arguments and a range of rows, columns
// or elements and know nothing of threads; they are compiled once per instruction set, each time in
// the namespace of its name.
//
//   SNUG_VERSIONS(GluForwardRows, void(const GluForwardParams&, Range));
//
// in the op's file declares these versions, and a function of this name that calls the best one.
#ifndef KERNELS_CPU_LOOPS_VERSIONS_H_
#define KERNELS_CPU_LOOPS_VERSIONS_H_

#include <type_traits>

#include "kernels/cpu/loops/loops.h"
#include "kernels/cpu/loops/range.h"

#ifdef SNUG_X86
#define SNUG_VERSIONS(loop, ...)                                       \
  namespace baseline {                                                 \
  std::type_identity_t<__VA_ARGS__> loop;                              \
  }                                                                    \
  namespace avx2 {                                                     \
  std::type_identity_t<__VA_ARGS__> loop;                              \
  }                                                                    \
  namespace avx512 {                                                   \
  std::type_identity_t<__VA_ARGS__> loop;                              \
  }                                                                    \
  namespace avx512bf16 {                                               \
  std::type_identity_t<__VA_ARGS__> loop;                              \
  }                                                                    \
  template <typename... Arguments>                                     \
  auto loop(const Arguments&... arguments) {                           \
    static constexpr std::type_identity_t<__VA_ARGS__>* versions[] = { \
        baseline::loop, avx2::loop, avx512::loop, avx512bf16::loop};   \
    return versions[static_cast<int>(BestLoops().set)](arguments...);  \
  }                                                                    \
  static_assert(true)
#else
#define SNUG_VERSIONS(loop, ...)          \
  namespace baseline {                    \
  std::type_identity_t<__VA_ARGS__> loop; \
  }                                       \
  using baseline::loop;                   \
  static_assert(true)
#endif

#endif  // KERNELS_CPU_LOOPS_VERSIONS_H_

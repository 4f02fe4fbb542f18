// Dividing work among the threads of OpenMP's default team: contiguous, nearly equal ranges.
//
// Which thread does what depends on the number of threads, so a body's result for an item must not
// depend on the range in which it gets it.
#ifndef KERNELS_CPU_PARALLEL_H_
#define KERNELS_CPU_PARALLEL_H_

#include <omp.h>

#include <cstdint>

#include "kernels/cpu/loops/range.h"

namespace snug::kernels::cpu {

// Below this much traffic one thread does all: waking a team costs about 5 us, in which a core
// moves some 64 KiB.
inline constexpr int64_t kParallelBytes = 64 << 10;

// ThreadSanitizer does not see the barriers of GCC's OpenMP library and would report every op.
#ifdef __SANITIZE_THREAD__
inline constexpr bool kParallel = false;
#else
inline constexpr bool kParallel = true;
#endif

// body(Range) for ranges that make up [0, n). All threads or one: a team of another size would make
// the library end threads and start them again.
template <typename Body>
void ParallelFor(int64_t n, int64_t bytes, Body body) {
  if (n <= 0) return;
  if (!kParallel || n == 1 || bytes < kParallelBytes || omp_in_parallel()) {
    body(Range{0, n});
    return;
  }
#pragma omp parallel
  {
    const int64_t team = omp_get_num_threads(), thread = omp_get_thread_num();
    const int64_t each = n / team, rest = n % team;
    const int64_t begin = thread * each + (thread < rest ? thread : rest);
    const Range range = {begin, begin + each + (thread < rest ? 1 : 0)};
    if (range.begin < range.end) body(range);
  }
}

// The same for columns, in ranges that begin at multiples of 16: whole cache lines, whole vectors.
template <typename Body>
void ParallelColumns(int64_t columns, int64_t bytes, Body body) {
  constexpr int64_t kGroup = 16;
  ParallelFor((columns + kGroup - 1) / kGroup, bytes, [&](Range groups) {
    const int64_t end = groups.end * kGroup;
    body(Range{groups.begin * kGroup, end < columns ? end : columns});
  });
}

// body(unit, thread) for units 0 .. n - 1, handed out one by one to at most `threads` threads: for
// units of unequal cost whose results do not depend on who works on them.
template <typename Body>
void ParallelUnits(int64_t n, int64_t threads, Body body) {
  if (!kParallel || n == 1 || threads == 1 || omp_in_parallel()) {
    for (int64_t unit = 0; unit < n; ++unit) body(unit, 0);
    return;
  }
  int64_t next = 0;
#pragma omp parallel
  {
    const int64_t thread = omp_get_thread_num();
    while (thread < threads) {
      int64_t unit;
#pragma omp atomic capture
      unit = next++;
      if (unit >= n) break;
      body(unit, thread);
    }
  }
}

}  // namespace snug::kernels::cpu

#endif  // KERNELS_CPU_PARALLEL_H_

// How much the caches hold: what is larger goes past them (output.h).
#ifndef KERNELS_CPU_LOOPS_CACHED_BYTES_H_
#define KERNELS_CPU_LOOPS_CACHED_BYTES_H_

#include <cstdint>

namespace snug::kernels {

// The size of the last cache, read once.
int64_t CachedBytes();

// Makes CachedBytes() give this, for tests. Not while an op runs.
void UseCachedBytes(int64_t bytes);

}  // namespace snug::kernels

#endif  // KERNELS_CPU_LOOPS_CACHED_BYTES_H_

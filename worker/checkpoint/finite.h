// Whether values are all finite: what a checkpoint and an export promise.
#ifndef WORKER_CHECKPOINT_FINITE_H_
#define WORKER_CHECKPOINT_FINITE_H_

#include <cstdint>
#include <string_view>

namespace snug::checkpoint {

// Index of the first NaN or infinity among `count` elements, -1 when there is none. `data` need not
// be aligned.
int64_t FirstNonFiniteF32(const void* data, int64_t count);
int64_t FirstNonFiniteBf16(const void* data, int64_t count);

// The same of `bytes` bytes by the dtype's name; -1 as well for a dtype that is not a float's.
int64_t FirstNonFinite(std::string_view dtype, const void* data, int64_t bytes);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_FINITE_H_

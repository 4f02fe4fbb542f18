// Sizes that ops and the formulas of their workspace share.
#ifndef WORKER_PROGRAM_WORKSPACE_H_
#define WORKER_PROGRAM_WORKSPACE_H_

#include <cstdint>

namespace snug::program {

// Rows that ops convert to fp32 at a time: enough for a product to run at full speed, few enough to
// stay in the cache.
inline constexpr int64_t kConvertRows = 256;

// Parts of a bf16 product's result, which are summed in fp32 first: enough rows for a product to
// run at full speed, few enough bytes to stay in the cache.
inline constexpr int64_t kPartRows = 512, kPartColumns = 2048;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_WORKSPACE_H_

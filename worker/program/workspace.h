// Sizes that ops and the formulas of their workspace share.
#ifndef WORKER_PROGRAM_WORKSPACE_H_
#define WORKER_PROGRAM_WORKSPACE_H_

#include <cstdint>

namespace snug::program {

// Rows that ops convert to fp32 at a time: enough for a product to run at full speed, few enough to
// stay in the cache.
inline constexpr int64_t kConvertRows = 256;

// Rows of a bf16 product at a time. From some 1,000 rows on oneDNN copies all of its operand for
// some widths; below, its scratch has the closed form of workspace.cc.
inline constexpr int64_t kProductRows = 512;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_WORKSPACE_H_

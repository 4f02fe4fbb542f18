// Sizes that ops and the formulas of their workspace share.
#ifndef WORKER_PROGRAM_WORKSPACE_H_
#define WORKER_PROGRAM_WORKSPACE_H_

#include <algorithm>
#include <cstdint>

#include "worker/program/program.h"

namespace snug::program {

// Rows that ops convert to fp32 at a time: enough for a product to run at full speed, few enough to
// stay in the cache.
inline constexpr int64_t kConvertRows = 256;

// Parts of a bf16 product's result, which are summed in fp32 first: enough rows for a product to
// run at full speed, few enough bytes to stay in the cache.
inline constexpr int64_t kPartRows = 512, kPartColumns = 2048;

// Key heads that attention's backward takes at a time: enough query heads to keep every thread busy
// (four each, so that uneven ones even out), no more than there are.
inline int64_t AttentionKeyHeadsAtOnce(const OpAttributes& op, int64_t threads) {
  const int64_t group = op.heads / op.kv_heads;
  return std::min(op.kv_heads, (4 * threads + group - 1) / group);
}

}  // namespace snug::program

#endif  // WORKER_PROGRAM_WORKSPACE_H_

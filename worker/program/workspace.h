// Sizes that ops and the formulas of their workspace share.
#ifndef WORKER_PROGRAM_WORKSPACE_H_
#define WORKER_PROGRAM_WORKSPACE_H_

#include <cstdint>

#include "worker/program/op_table.h"

namespace snug::program {

// Rows that ops convert to fp32 at a time: enough for a product to run at full speed; on the CPU
// few enough to stay in the cache.
constexpr int64_t ConvertRows(const Machine& machine) { return machine.cpu ? 256 : 2048; }

// Parts of a bf16 product's result, which are summed in fp32 first: enough rows for a product to
// run at full speed; on the CPU few enough bytes to stay in the cache.
constexpr int64_t PartRows(const Machine& machine) { return machine.cpu ? 512 : 4096; }
constexpr int64_t PartColumns(const Machine& machine) { return machine.cpu ? 2048 : 4096; }

}  // namespace snug::program

#endif  // WORKER_PROGRAM_WORKSPACE_H_

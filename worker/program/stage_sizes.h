// Of an encoder whose layers come in stages (stages.h), what sets one stage apart.
#ifndef WORKER_PROGRAM_STAGE_SIZES_H_
#define WORKER_PROGRAM_STAGE_SIZES_H_

#include <cstdint>

namespace snug::program {

struct StageSizes {
  int64_t layers = 0;  // Without what merges its patches.
  int64_t heads = 0;
  bool operator==(const StageSizes&) const = default;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_STAGE_SIZES_H_

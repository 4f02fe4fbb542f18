// The instruction set that the CPU's kernels run with: the best of this machine, unless another is
// named. Attention gives other bits with another, all else the same.
#ifndef KERNELS_INSTRUCTION_SET_H_
#define KERNELS_INSTRUCTION_SET_H_

#include "kernels/types.h"

namespace snug::kernels {

// "baseline" (what the compiler takes without being told), "avx2", "avx512", "avx512bf16". Not
// while an op runs. Errors: kBadValue, no such name; kNoDevice, this machine or build has it not.
Error UseInstructionSet(const char* name);

// The name of the one in use.
const char* InstructionSetInUse();

}  // namespace snug::kernels

#endif  // KERNELS_INSTRUCTION_SET_H_

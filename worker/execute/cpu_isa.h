// SNUG_CPU_ISA: the instruction set of our kernels and of the libraries, where it shall not be the
// best that the CPU has: to see what another machine would do, or to get its bits.
#ifndef WORKER_EXECUTE_CPU_ISA_H_
#define WORKER_EXECUTE_CPU_ISA_H_

#include "absl/status/status.h"

namespace snug::execute {

// Reads the variable and, where it is set, holds our kernels to it; oneDNN, MKL and ATen as well by
// their own variables (ONEDNN_MAX_CPU_ISA, MKL_ENABLE_INSTRUCTIONS, ATEN_CPU_CAPABILITY), of which
// those that are set already stay. Before the first op and the first thread: libraries read them
// once. Errors: a name that is none, or one that this CPU has not.
absl::Status UseCpuIsaOfEnvironment();

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_CPU_ISA_H_

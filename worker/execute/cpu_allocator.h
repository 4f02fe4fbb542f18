// The CPU's TrackingAllocator, which is ATen's CPU allocator as well.
#ifndef WORKER_EXECUTE_CPU_ALLOCATOR_H_
#define WORKER_EXECUTE_CPU_ALLOCATOR_H_

#include "worker/execute/allocator.h"

namespace snug::execute {

// The process has one (ATen's CPU allocator is global), made and given to ATen by the first call;
// it lives as long as the process.
TrackingAllocator& CpuAllocator();

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_CPU_ALLOCATOR_H_

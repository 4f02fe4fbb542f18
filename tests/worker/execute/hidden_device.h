// A CPU whose memory the host may not touch: pages without any permission, but while a copy, a
// fill, a kernel or an op runs. What else looks there ends the test. Kernels and ops are the CPU's,
// so that results are the CPU's to the bit.
//
// Linked with this, kernels that are called on a stream run so; those that the worker calls outside
// of ops are defined, all others are missing as in a build without CUDA.
#ifndef TESTS_WORKER_EXECUTE_HIDDEN_DEVICE_H_
#define TESTS_WORKER_EXECUTE_HIDDEN_DEVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/execute/device.h"

namespace snug::execute {

// The process's, of two threads, as TestDevice.
Device& HiddenDevice();

// What lies there, where the test can look at it.
std::vector<char> BytesOf(Device& device, const void* from, int64_t bytes);
inline std::vector<char> BytesOf(Device& device, const View& view) {
  return BytesOf(device, view.data, view.bytes());
}

}  // namespace snug::execute

#endif  // TESTS_WORKER_EXECUTE_HIDDEN_DEVICE_H_

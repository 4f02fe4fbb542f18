// What a worker takes before it holds anything of a job: libraries, thread pool, what they set up
// at their first use.
#ifndef WORKER_TRAIN_MEASURE_CONTEXT_H_
#define WORKER_TRAIN_MEASURE_CONTEXT_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::train {

// On the CPU: its bytes, the highest resident size after products of every kind on every path, and
// the measured choice of products, and the rates that time is reckoned by, as one line of JSON:
// what a node asks its worker for.
std::string NodeFactsText();

// The same line for a device. "gpu:N": its bytes of that GPU's memory
// (execute/gpu/measure_context.h); cuBLAS chooses products by itself. Before anything else in the
// process.
absl::StatusOr<std::string> DeviceFactsText(const std::string& device);

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_CONTEXT_H_

// What a worker takes before it holds anything of a job: libraries, thread pool, what they set up
// at their first use.
#ifndef WORKER_TRAIN_MEASURE_CONTEXT_H_
#define WORKER_TRAIN_MEASURE_CONTEXT_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::train {

// As one line of JSON, what a node asks its worker for of a device. "cpu:N": bytes, the highest
// resident size after products of every kind on every path, the measured choice of products, and
// the rates that time is reckoned by. "gpu:N": bytes of that GPU's memory, which of them a process
// cannot see of itself (execute/gpu/measure_context.h), and the rates that are measured of it;
// cuBLAS chooses products by itself. Before anything else in the process.
absl::StatusOr<std::string> DeviceFactsText(const std::string& device);

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_CONTEXT_H_

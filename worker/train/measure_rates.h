// How fast a device is at what a step is made of: what the daemon reckons a plan's time by.
#ifndef WORKER_TRAIN_MEASURE_RATES_H_
#define WORKER_TRAIN_MEASURE_RATES_H_

#include "absl/status/statusor.h"
#include "worker/execute/device.h"
#include "worker/program/rates.h"

namespace snug::train {

// Of a CPU, whose threads are this process's: products on the paths in use (execute/gemm.h),
// attention and a pass over memory; of any device copies to the host and back, and starting runs.
// What is not measured is 0. Takes a second and 320 MB; on a GPU 32 MB.
absl::StatusOr<program::MachineRates> MeasureRates(execute::Device& device);

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_RATES_H_

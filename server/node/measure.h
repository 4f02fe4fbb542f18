// What a node measures of its devices' workers before it runs one: the same for all attempts, and
// too slow to do for each.
#ifndef SERVER_NODE_MEASURE_H_
#define SERVER_NODE_MEASURE_H_

#include <vector>

#include "absl/status/status.h"
#include "server/node/launcher.h"
#include "server/place/devices.h"

namespace snug::server {

// Sets context_bytes, unseen_bytes, products and rates of each device, from `WORKER
// --measure-context`, or `WORKER_CUDA --measure-context gpu:0` in a worker's environment: one line
// of JSON,
//   {"context_bytes": 174063616, "unseen_bytes": 0, "products": "...",
//    "rates": {"fp32": {"products": 1e11, ...}, "bf16": {...}, "head_rows": 1024}}
// by program::kLimitNames. Rates may be missing: of a GPU the worker measures copies, what it takes
// to start a run and how many rows of the head are fast (program/head_rows.h), and the others are
// those of its kind (place/device_kinds.h). Remembered in
// <state>/context.json for as long as the worker's binary, the processor and, of a GPU, its model
// and driver stay the same; two GPUs that are alike are measured once. So attempts of one job
// multiply alike. A GPU in trouble is not measured: nothing is set of it that is not remembered.
absl::Status MeasureDevices(const LauncherSettings& settings, std::vector<Device>& devices);

}  // namespace snug::server

#endif  // SERVER_NODE_MEASURE_H_

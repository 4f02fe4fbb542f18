// What an attempt holds of its device, component by component, from two who must agree: the plan
// that the daemon reserved it by, the worker's own account of the same program, and the memory that
// it took. Reads no device.
#ifndef WORKER_TRAIN_STATIC_BYTES_H_
#define WORKER_TRAIN_STATIC_BYTES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/program/planning/predict.h"

namespace snug::train {

// One account of the bytes, and whose it is: "the plan".
struct BytesBy {
  absl::string_view whom;
  const program::Components& bytes;
};

// Internal, naming every component of Components::held() on which they differ, with both numbers.
absl::Status CheckSameBytes(const BytesBy& one, const BytesBy& other);

}  // namespace snug::train

#endif  // WORKER_TRAIN_STATIC_BYTES_H_

// What a status that ended an attempt means to the daemon: the reason that users see, and whether
// another try can help.
#ifndef WORKER_TRAIN_FAILURE_H_
#define WORKER_TRAIN_FAILURE_H_

#include "absl/status/status.h"
#include "worker/train/attempt.h"

namespace snug::train {

struct Failure {
  const char* reason;
  FailureClass failure_class;
};

Failure FailureOf(const absl::Status& status);

}  // namespace snug::train

#endif  // WORKER_TRAIN_FAILURE_H_

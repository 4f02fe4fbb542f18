// An op's activation as kernels name it.
#ifndef WORKER_EXECUTE_OPS_ACTIVATION_H_
#define WORKER_EXECUTE_OPS_ACTIVATION_H_

#include "kernels/activation.h"
#include "worker/execute/op_run.h"

namespace snug::execute {

inline kernels::Activation ActivationOf(const OpRun& run) {
  switch (run.op->attributes.activation) {
    case program::Activation::kSilu:
      return kernels::Activation::kSilu;
    case program::Activation::kGeluTanh:
      return kernels::Activation::kGeluTanh;
    case program::Activation::kGelu:
      return kernels::Activation::kGelu;
    case program::Activation::kRelu:
      return kernels::Activation::kRelu;
    case program::Activation::kTanh:
      break;
  }
  return kernels::Activation::kTanh;
}

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_OPS_ACTIVATION_H_

#include "worker/train/failure.h"

#include "worker/program/files/opened_files.h"

namespace snug::train {

Failure FailureOf(const absl::Status& status) {
  if (program::IsInputChanged(status)) return {"INPUT_CHANGED", FailureClass::kUser};
  switch (status.code()) {
    case absl::StatusCode::kOutOfRange:
      return {"NON_FINITE", FailureClass::kUser};
    case absl::StatusCode::kResourceExhausted:
      return {"OUT_OF_MEMORY", FailureClass::kOutOfMemory};
    case absl::StatusCode::kUnavailable:
      return {"DISK_FULL", FailureClass::kInfrastructure};
    case absl::StatusCode::kAborted:
      return {"INFRASTRUCTURE", FailureClass::kInfrastructure};
    case absl::StatusCode::kDataLoss:
      return {"DATA_LOSS", FailureClass::kUser};
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return {"INTERNAL", FailureClass::kUser};
    default:
      return {"INVALID_INPUT", FailureClass::kUser};
  }
}

}  // namespace snug::train

// Names of errors.
#include "kernels/types.h"

namespace snug::kernels {

const char* ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kNullPointer:
      return "null pointer";
    case ErrorCode::kBadShape:
      return "bad shape";
    case ErrorCode::kBadStride:
      return "bad stride";
    case ErrorCode::kBadDType:
      return "bad dtype";
    case ErrorCode::kBadIndex:
      return "bad index";
    case ErrorCode::kBadValue:
      return "bad value";
    case ErrorCode::kLaunchFailed:
      return "launch failed";
    case ErrorCode::kNoDevice:
      return "no device for this stream";
  }
  return "unknown error";
}

}  // namespace snug::kernels

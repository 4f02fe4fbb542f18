#include "worker/execute/scratch.h"

#include "worker/execute/device.h"

namespace snug::execute {

Scratch::Scratch(const OpRun& run, int64_t bytes) {
  if (bytes == 0) return;
  allocator_ = &run.device->allocator();
  taken_ = allocator_->Take(bytes);
  view_.data = taken_.address;
}

Scratch::Scratch(const OpRun& run, int64_t rows, int64_t width, program::DType dtype)
    : Scratch(run, rows * width * program::SizeOf(dtype)) {
  view_ = {view_.data, rows, width, dtype};
}

Scratch::~Scratch() {
  if (allocator_ != nullptr) allocator_->GiveBack(taken_);
}

}  // namespace snug::execute

// What an op takes from its slice of the arena, for as long as the object lives.
#ifndef WORKER_EXECUTE_SCRATCH_H_
#define WORKER_EXECUTE_SCRATCH_H_

#include <cstdint>

#include "worker/execute/allocator.h"
#include "worker/execute/op_run.h"
#include "worker/execute/view.h"

namespace snug::execute {

class Scratch {
 public:
  Scratch() = default;
  // Throws SliceExceeded when the op declares less. No bytes: null.
  Scratch(const OpRun& run, int64_t bytes);
  // (rows, width), not initialised.
  Scratch(const OpRun& run, int64_t rows, int64_t width, program::DType dtype);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return view_.data; }
  const View& view() const { return view_; }
  // The first rows of it.
  View First(int64_t rows) const { return view_.Rows(0, rows); }

 private:
  TrackingAllocator* allocator_ = nullptr;
  TrackingAllocator::Taken taken_;
  View view_;
};

// What a kernel takes on a stream and not on the CPU.
class StreamScratch : public Scratch {
 public:
  StreamScratch(const OpRun& run, int64_t bytes) : Scratch(run, run.stream() ? bytes : 0) {}
};

}  // namespace snug::execute

#endif  // WORKER_EXECUTE_SCRATCH_H_

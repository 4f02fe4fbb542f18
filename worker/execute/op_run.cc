#include "worker/execute/op_run.h"

#include "worker/execute/device.h"

namespace snug::execute {

kernels::Stream OpRun::stream() const { return device->stream(stream_number); }

void OpRun::Copy(void* to, const void* from, int64_t bytes) const {
  if (bytes > 0) device->Copy(to, from, bytes, stream_number);
}

void OpRun::Zero(const View& view) const {
  if (view.bytes() > 0) device->Zero(view.data, view.bytes(), stream_number);
}

void OpRun::BeginGradient(size_t i) const {
  if (!adds_to_parameter(i)) Zero(parameters[i].gradient);
}

void OpRun::BeginGradients(size_t first) const {
  for (size_t i = first; i < parameters.size(); ++i) BeginGradient(i);
}

}  // namespace snug::execute

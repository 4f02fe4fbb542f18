#include "worker/execute/gpu/measure_context.h"

#include <cstdlib>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/gpu/cuda_runtime.h"
#include "worker/execute/gpu/ordinal.h"
#include "worker/execute/torch_errors.h"

namespace snug::execute {

absl::StatusOr<ChildMemory> GpuContextBytes(const std::string& name,
                                            absl::FunctionRef<absl::Status(Device&)> use) {
  absl::string_view number = name;
  int index = 0;
  if (!absl::ConsumePrefix(&number, "gpu:") || !absl::SimpleAtoi(number, &index) || index < 0)
    return absl::InvalidArgumentError(absl::StrCat("device \"", name, "\" is no gpu:N"));
  const int ordinal = CudaOrdinal(index, std::getenv("CUDA_VISIBLE_DEVICES"));
  std::unique_ptr<GpuRuntime> observer;
  std::unique_ptr<Device> device;  // The child's: there until its end.
  return BytesTakenByChild({.free_bytes = [&]() -> absl::StatusOr<int64_t> {
                              if (observer == nullptr) {
                                ASSIGN_OR_RETURN(observer, OpenCudaRuntime(ordinal));
                              }
                              return observer->memory().free_bytes;
                            },
                            .take = [&]() -> absl::StatusOr<int64_t> {
                              ASSIGN_OR_RETURN(device, OpenDevice(name, /*threads=*/1));
                              RETURN_IF_ERROR(use(*device));
                              int64_t seen = 0;
                              RETURN_IF_ERROR(CatchTorch([&] { seen = device->SeenBytes(); }));
                              return seen;
                            }});
}

}  // namespace snug::execute

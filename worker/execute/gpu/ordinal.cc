#include "worker/execute/gpu/ordinal.h"

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace snug::execute {

int CudaOrdinal(int index, const char* visible_devices) {
  if (visible_devices == nullptr || *visible_devices == '\0') return index;
  return absl::StrContains(visible_devices, ',') ? index : 0;
}

}  // namespace snug::execute

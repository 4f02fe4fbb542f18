// Tells ThreadSanitizer of the references that count an absl::Status's holders: the last of them
// frees it. Debian's Abseil is compiled without it, so that what the count orders looks like a
// race. This definition takes the place of the library's, as those of absl_locks.cc do.
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace absl {

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* held = RepToPointer(rep);
  if (held->ref.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
}

}  // namespace absl

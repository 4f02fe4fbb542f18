// Tells ThreadSanitizer of the references that count an absl::Status's holders: the last of them
// frees it. Debian's Abseil is compiled without it, so that what the count orders looks like a
// race. This definition takes the place of the library's, as those of absl_locks.cc do.
//
// This is compiled without the sanitizer and tells it of the count, and of what is freed: but in a
// program that serves by gRPC, where a status may have come in an order that is not seen.
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "tests/threads/library.h"

extern const bool snug_serves_by_grpc __attribute__((weak));

namespace absl {

void Status::UnrefNonInlined(uintptr_t rep) {
  status_internal::StatusRep* held = RepToPointer(rep);
  __tsan_release(held);
  if (held->ref.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  __tsan_acquire(held);
  const bool unseen = &snug_serves_by_grpc != nullptr;
  if (unseen) AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  delete held;
  if (unseen) AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
}

}  // namespace absl

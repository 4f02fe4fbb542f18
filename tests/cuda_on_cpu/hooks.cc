// The calls that -fsanitize=thread puts before each access, answered by memory_watch. Linked
// without ThreadSanitizer's library, whose names these are. Compiled without instrumentation.
#include <cstddef>
#include <cstdint>

#include "tests/cuda_on_cpu/memory_watch.h"

using snug::cuda_on_cpu::Access;
using snug::cuda_on_cpu::OnAccess;

// NOLINTBEGIN: names that the compiler prescribes.
extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define SNUG_HOOKS(bytes)                                                             \
  void __tsan_read##bytes(void* p) { OnAccess(p, bytes, Access::kRead); }             \
  void __tsan_write##bytes(void* p) { OnAccess(p, bytes, Access::kWrite); }           \
  void __tsan_unaligned_read##bytes(void* p) { OnAccess(p, bytes, Access::kRead); }   \
  void __tsan_unaligned_write##bytes(void* p) { OnAccess(p, bytes, Access::kWrite); } \
  void __tsan_volatile_read##bytes(void* p) { OnAccess(p, bytes, Access::kRead); }    \
  void __tsan_volatile_write##bytes(void* p) { OnAccess(p, bytes, Access::kWrite); }
SNUG_HOOKS(1)
SNUG_HOOKS(2)
SNUG_HOOKS(4)
SNUG_HOOKS(8)
SNUG_HOOKS(16)
#undef SNUG_HOOKS

void __tsan_read_range(void* p, size_t bytes) { OnAccess(p, bytes, Access::kRead); }
void __tsan_write_range(void* p, size_t bytes) { OnAccess(p, bytes, Access::kWrite); }

// -fsanitize=alignment: a pointer that is not aligned for the type it is used as, whatever the
// compiler makes of the access.
void __ubsan_handle_type_mismatch_v1(void*, void* p) { snug::cuda_on_cpu::OnMisaligned(p); }

}  // extern "C"
// NOLINTEND

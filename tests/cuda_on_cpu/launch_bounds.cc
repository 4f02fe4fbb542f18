#include "tests/cuda_on_cpu/launch_bounds.h"

#include <algorithm>

// Where the empty instructions before each kernel with bounds begin: a section that GCC fills, and
// whose ends the linker names. Weak: a program may have no such kernel.
// NOLINTBEGIN: names that the linker prescribes.
extern "C" {
extern const uintptr_t __start___patchable_function_entries[] __attribute__((weak));
extern const uintptr_t __stop___patchable_function_entries[] __attribute__((weak));
}
// NOLINTEND

namespace snug::cuda_on_cpu {
namespace {

constexpr uint8_t kEmptyInstruction = 0x90;  // x86: nop.

}  // namespace

uint64_t MostThreadsOf(const void* kernel) {
  const auto entry = reinterpret_cast<uintptr_t>(kernel);
  uintptr_t begin = 0;
  for (const uintptr_t* at = __start___patchable_function_entries;
       at != __stop___patchable_function_entries; ++at) {
    if (*at < entry) begin = std::max(begin, *at);
  }
  // Those of another kernel end before that one's code.
  const auto* code = reinterpret_cast<const uint8_t*>(begin);
  const bool own = begin != 0 && entry - begin <= kMaxThreads &&
                   std::all_of(code, reinterpret_cast<const uint8_t*>(entry),
                               [](uint8_t byte) { return byte == kEmptyInstruction; });
  return own ? entry - begin : kMaxThreads;
}

}  // namespace snug::cuda_on_cpu

// Choice of the instruction set, at run time.
#include "kernels/cpu/loops/loops.h"

#include <atomic>
#include <cstring>

#include "kernels/instruction_set.h"

namespace snug::kernels {

namespace baseline {
extern const Loops kLoops;
}
#ifdef SNUG_X86
namespace avx2 {
extern const Loops kLoops;
}
namespace avx512 {
extern const Loops kLoops;
}
namespace avx512bf16 {
extern const Loops kLoops;
}
#endif

namespace {

const Loops* Best() {
  for (InstructionSet isa :
       {InstructionSet::kAvx512Bf16, InstructionSet::kAvx512, InstructionSet::kAvx2}) {
    if (const Loops* loops = LoopsOf(isa)) return loops;
  }
  return &baseline::kLoops;
}

std::atomic<const Loops*>& Chosen() {
  static std::atomic<const Loops*> chosen{Best()};
  return chosen;
}

}  // namespace

const Loops* LoopsOf(InstructionSet isa) {
  if (isa == InstructionSet::kBaseline) return &baseline::kLoops;
#ifdef SNUG_X86
  // Names each set of features that kernels/CMakeLists.txt compiles for.
  if (isa == InstructionSet::kAvx2 && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma")) {
    return &avx2::kLoops;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == InstructionSet::kAvx512 && avx512) return &avx512::kLoops;
  if (isa == InstructionSet::kAvx512Bf16 && avx512 && __builtin_cpu_supports("avx512bf16")) {
    return &avx512bf16::kLoops;
  }
#endif
  return nullptr;
}

const Loops& BestLoops() { return *Chosen().load(std::memory_order_relaxed); }

void UseLoops(const Loops& loops) { Chosen().store(&loops, std::memory_order_relaxed); }

Error UseInstructionSet(const char* name) {
  constexpr const char* kNames[] = {"baseline", "avx2", "avx512", "avx512bf16"};
  for (int i = 0; i < 4; ++i) {
    if (std::strcmp(name, kNames[i]) != 0) continue;
    const Loops* loops = LoopsOf(static_cast<InstructionSet>(i));
    if (loops == nullptr) return {ErrorCode::kNoDevice, kNames[i]};
    UseLoops(*loops);
    return {};
  }
  return {ErrorCode::kBadValue, "name"};
}

const char* InstructionSetInUse() { return BestLoops().name; }

}  // namespace snug::kernels

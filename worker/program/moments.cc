#include "worker/program/moments.h"

#include "worker/program/tape.h"

namespace snug::program {

bool HasMomentCodes(const Program& program, const Parameter& parameter) {
  return program.moments == MomentKind::k8Bit && !IsEmbedding(parameter) &&
         parameter.elements() >= kLeastCodedElements;
}

int64_t MomentBytes(const Program& program, const Parameter& parameter) {
  constexpr int64_t kF32 = 4;
  const int64_t n = parameter.elements();
  if (!HasMomentCodes(program, parameter)) return 2 * Aligned(n * kF32);
  return 2 * (Aligned(n) + Aligned((n + kMomentBlock - 1) / kMomentBlock * kF32));
}

}  // namespace snug::program

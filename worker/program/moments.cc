#include "worker/program/moments.h"

#include "worker/program/tape.h"

namespace snug::program {
namespace {

constexpr int64_t kF32 = 4;

}  // namespace

bool HasMomentCodes(const Program& program, const Parameter& parameter) {
  return program.moments == MomentKind::k8Bit && !IsEmbedding(parameter) &&
         parameter.elements() >= kLeastCodedElements;
}

int64_t MomentBytes(const Program& program, const Parameter& parameter) {
  const int64_t n = parameter.elements();
  if (!HasMomentCodes(program, parameter)) return 2 * Aligned(n * kF32);
  return 2 * (Aligned(n) + Aligned((n + kMomentBlock - 1) / kMomentBlock * kF32));
}

int64_t OptimizerBytes(const Program& program, const Parameter& parameter) {
  if (!parameter.trainable) return 0;
  const int64_t master = HasMaster(parameter) ? Aligned(parameter.elements() * kF32) : 0;
  return MomentBytes(program, parameter) + master;
}

}  // namespace snug::program

#include "worker/train/masking.h"

#include "kernels/philox.h"
#include "worker/weights/random_ops.h"

namespace snug::train {
namespace {

constexpr float kHidden = 0.8f;
constexpr float kHiddenOrReplaced = 0.9f;

}  // namespace

// One block of four words for each token: whether it is chosen, what becomes of it, and in 64 bits
// which token replaces it.
MaskedToken MaskOf(const Masking& masking, const MaskTokens& tokens, int64_t row, int64_t t,
                   int32_t id) {
  const kernels::RandomSite site{.seed = masking.seed,
                                 .step = static_cast<uint32_t>(masking.epoch),
                                 .micro_batch = static_cast<uint32_t>(row),
                                 .op = kMaskOp};
  const kernels::Random4 random = kernels::RandomBlock(site, static_cast<uint64_t>(t));
  if (kernels::ToUniform(random.word[0]) >= masking.probability) return {};
  const float what = kernels::ToUniform(random.word[1]);
  if (what < kHidden) return {true, tokens.mask};
  if (what >= kHiddenOrReplaced) return {true, id};
  const uint64_t word = uint64_t{random.word[2]} << 32 | random.word[3];
  const auto vocabulary = static_cast<unsigned __int128>(tokens.vocabulary);
  return {true, static_cast<int32_t>(word * vocabulary >> 64)};
}

}  // namespace snug::train

// The tokens that are trained: the head works on these rows alone, which in instruction tuning are
// often less than half.
//
//   index = the i, rising, with labels[i] != ignore_label and weights[i] != 0;  count = how many
#ifndef KERNELS_VALID_TOKENS_H_
#define KERNELS_VALID_TOKENS_H_

#include <cstdint>

#include "kernels/types.h"

namespace snug::kernels {

// `index` beyond `count` is left as it is: gather and scatter rows with N = the count, or in chunks
// of it. Traffic: 4 or 8 (12 with weights) bytes per row, and 4 per valid one. On CUDA one block
// does it all.
struct ValidTokensParams {
  const void* labels = nullptr;    // (N), label_type
  const float* weights = nullptr;  // (N); null: all 1
  int32_t* index = nullptr;        // (N), of which `count` are written
  int64_t* count = nullptr;        // (1)
  int64_t N = 0;                   // < 2^31. With N == 0 count becomes 0.
  IndexType label_type = IndexType::kI32;
  int64_t ignore_label = -100;
};
Error ValidTokens(const ValidTokensParams& p, Stream stream);

}  // namespace snug::kernels

#endif  // KERNELS_VALID_TOKENS_H_

// What the tests of cross-entropy share: a chunk of rows, and its call.
#ifndef TESTS_KERNELS_CROSS_ENTROPY_TESTING_H_
#define TESTS_KERNELS_CROSS_ENTROPY_TESTING_H_

#include <cmath>
#include <cstdint>

#include "kernels/cross_entropy.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

// What ran on a device has run before the host looks.
inline Error RunLoss(const CrossEntropyParams& p) {
  const Error error = CrossEntropy(p, TestStream());
  WaitForKernels();
  return error;
}

// A chunk of rows with labels and weights drawn from their numbers.
struct Chunk {
  Matrix logits, dlogits;
  SharedVector<int32_t> labels;
  SharedVector<float> weights;
  SharedVector<double> loss;

  Chunk(int64_t N, int64_t V, DType dtype)
      : logits(N, V, dtype), dlogits(N, V, dtype), loss(N, NAN) {
    logits.Fill(1, 4.0);
    for (int64_t i = 0; i < N; ++i) {
      labels.push_back(static_cast<int32_t>((i * 7919 + V - 1) % V));
      weights.push_back(1.0f + 0.25f * static_cast<float>(i % 3));
    }
  }
  CrossEntropyParams Params() {
    return {.logits = logits.data(),
            .dlogits = dlogits.data(),
            .labels = labels.data(),
            .weights = weights.data(),
            .row_loss = loss.data(),
            .N = logits.N(),
            .V = logits.C(),
            .logits_stride = logits.stride(),
            .dlogits_stride = dlogits.stride(),
            .dtype = logits.dtype(),
            .scale = 0.125f};
  }
};

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_CROSS_ENTROPY_TESTING_H_

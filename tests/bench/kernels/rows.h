// The rows of the benchmark's table: an op, what its header says it moves, and LibTorch's op of the
// same function.
#ifndef TESTS_BENCH_KERNELS_ROWS_H_
#define TESTS_BENCH_KERNELS_ROWS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/types.h"

namespace snug::bench {

// What rows make their operands of: N rows of C elements of a type, on a device.
struct Shape {
  int64_t N = 0, C = 0;
  kernels::DType dtype = kernels::DType::kF32;
  std::string device;

  int64_t elements() const { return N * C; }
  int64_t element_bytes() const { return kernels::SizeOf(dtype); }
  at::TensorOptions options() const;
  at::TensorOptions options(at::ScalarType type) const { return options().dtype(type); }
  at::Tensor Random() const { return at::randn({N, C}, options()); }
  at::Tensor Empty() const { return at::empty({N, C}, options()); }
};

// Both closures own their operands.
struct Case {
  int64_t bytes = 0;
  std::function<kernels::Error(kernels::Stream)> own;
  std::function<void()> torch;  // Null: LibTorch has no such op.
};

struct Row {
  const char* op;
  std::function<Case(const Shape&)> make;
};
const std::vector<Row>& Rows();

}  // namespace snug::bench

#endif  // TESTS_BENCH_KERNELS_ROWS_H_

// The rows of the benchmark's table: an op, what its header says it moves, and LibTorch's op of the
// same function. One file per group of ops.
#ifndef TESTS_BENCH_KERNELS_ROWS_H_
#define TESTS_BENCH_KERNELS_ROWS_H_

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/types.h"

namespace snug::bench {

// Makes a row's operands, N rows of C elements of a type on a device, and owns them.
class Operands {
 public:
  Operands(int64_t rows, int64_t columns, kernels::DType type, const std::string& device)
      : N(rows), C(columns), dtype(type), device_(device) {}

  int64_t elements() const { return N * C; }
  int64_t bytes() const { return elements() * kernels::SizeOf(dtype); }
  at::ScalarType type() const;
  at::TensorOptions options(at::ScalarType of) const {
    return at::TensorOptions(device_).dtype(of);
  }

  at::Tensor Random() { return Random({N, C}); }
  at::Tensor Random(at::IntArrayRef sizes) { return Keep(at::randn(sizes, options(type()))); }
  at::Tensor Empty() { return Empty({N, C}, type()); }
  at::Tensor Empty(at::IntArrayRef sizes, at::ScalarType of) {
    return Keep(at::empty(sizes, options(of)));
  }
  at::Tensor Ones(at::IntArrayRef sizes, at::ScalarType of) {
    return Keep(at::ones(sizes, options(of)));
  }
  void* Workspace(int64_t bytes) { return Empty({bytes}, at::kByte).data_ptr(); }
  at::Tensor Keep(at::Tensor made) {
    kept_.push_back(made);
    return made;
  }

  const int64_t N, C;
  const kernels::DType dtype;

 private:
  const std::string device_;
  std::vector<at::Tensor> kept_;
};

// Its closures do not outlive the operands.
struct Case {
  int64_t bytes = 0;
  std::function<kernels::Error(kernels::Stream)> own;
  std::function<void()> torch;  // Null: LibTorch has no such op.
};

// A call of an op.
template <typename Params>
std::function<kernels::Error(kernels::Stream)> Call(kernels::Error (*op)(const Params&,
                                                                         kernels::Stream),
                                                    std::type_identity_t<Params> params) {
  return [=](kernels::Stream stream) { return op(params, stream); };
}

inline float* Floats(const at::Tensor& x) { return x.data_ptr<float>(); }
inline uint8_t* Bytes(const at::Tensor& x) { return x.data_ptr<uint8_t>(); }
inline int32_t* Ints(const at::Tensor& x) { return x.data_ptr<int32_t>(); }

// `op` begins with the op's name; what follows a comma tells it from other rows of the same op.
struct Row {
  const char* op;
  Case (*make)(Operands&);
};
std::vector<Row> NormRows();
std::vector<Row> ActivationRows();
std::vector<Row> StashRows();
std::vector<Row> TokenRows();
std::vector<Row> HeadRows();
std::vector<Row> SamplingRows();
std::vector<Row> StreamRows();
std::vector<Row> WeightRows();
std::vector<Row> OptimizerRows();
std::vector<Row> AttentionRows();

std::vector<Row> AllRows();

}  // namespace snug::bench

#endif  // TESTS_BENCH_KERNELS_ROWS_H_

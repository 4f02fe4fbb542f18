// What the tests of column-row sampling share: a pool of rows with scores, and what was selected.
#ifndef TESTS_KERNELS_SAMPLING_TESTING_H_
#define TESTS_KERNELS_SAMPLING_TESTING_H_

#include <cmath>
#include <random>

#include "kernels/sampling.h"
#include "tests/kernels/device.h"

namespace snug::kernels {

struct Pool {
  SharedVector<float> norms, surrogate;
  SharedVector<uint8_t> mask;  // Empty: none.
  float floor = 0.0f;
  SamplingKind kind = SamplingKind::kSystematic;

  int64_t T() const { return static_cast<int64_t>(norms.size()); }
};

struct Selected {
  SharedVector<int32_t> index;
  SharedVector<float> weights;
  SharedVector<int64_t> certain;
  SharedVector<uint64_t> workspace;

  Selected(int64_t T, int64_t k, SamplingKind kind)
      : index(k, -1),
        weights(k, NAN),
        certain(1, -1),
        workspace(SampleRowsWorkspace(T, kind) / 8 + 1, 0xdeadbeefdeadbeef) {}
  bool operator==(const Selected& other) const {
    return index == other.index && weights == other.weights && certain == other.certain;
  }
};

inline SampleRowsParams ParamsOf(const Pool& pool, Selected& out, uint32_t step) {
  return {.norms = pool.norms.data(),
          .surrogate = pool.surrogate.empty() ? nullptr : pool.surrogate.data(),
          .mask = pool.mask.empty() ? nullptr : pool.mask.data(),
          .index = out.index.data(),
          .weights = out.weights.data(),
          .certain = out.certain.data(),
          .T = pool.T(),
          .k = static_cast<int64_t>(out.index.size()),
          .kind = pool.kind,
          .floor = pool.floor,
          .site = {.seed = 1234567, .step = step, .op = 5},
          .workspace = out.workspace.data()};
}

// On `stream`, which may be the CPU's in the test of a device.
inline Selected Sample(const Pool& pool, int64_t k, uint32_t step, Stream stream) {
  Selected out(pool.T(), k, pool.kind);
  const Error error = SampleRows(ParamsOf(pool, out, step), stream);
  WaitForKernels();
  if (!error.ok()) out.index.assign(out.index.size(), -2);
  return out;
}

// exp(sigma * normal)
inline SharedVector<float> LogNormal(int64_t n, double sigma, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, sigma);
  SharedVector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(std::exp(normal(engine))));
  return values;
}

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_SAMPLING_TESTING_H_

// What the tests of norms share: arguments of normalize.h for test tensors, and references in
// double, which know nothing of how the kernels divide or center.
#ifndef TESTS_KERNELS_NORM_TESTING_H_
#define TESTS_KERNELS_NORM_TESTING_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/normalize.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {

inline constexpr Norm kNorms[] = {Norm::kRms, Norm::kLayer};
inline constexpr float kEps = 1e-5f;

inline NormalizeForwardParams Forward(Matrix& x, Matrix& xhat, Matrix& r, Norm norm) {
  return {.x = x.data(),
          .xhat = xhat.data(),
          .r = r.floats(),
          .N = x.N(),
          .C = x.C(),
          .x_stride = x.stride(),
          .xhat_stride = xhat.stride(),
          .dtype = xhat.dtype(),
          .eps = kEps,
          .norm = norm};
}

inline NormalizeBackwardParams Backward(Matrix& dxhat, Matrix& xhat, Matrix& r, Matrix& dx,
                                        Norm norm) {
  return {.dxhat = dxhat.data(),
          .xhat = xhat.data(),
          .r = r.floats(),
          .dx = dx.data(),
          .N = dx.N(),
          .C = dx.C(),
          .dxhat_stride = dxhat.stride(),
          .xhat_stride = xhat.stride(),
          .dx_stride = dx.stride(),
          .dtype = dxhat.dtype(),
          .norm = norm};
}

// Of each row.
struct Statistics {
  Reference mean, r;
};

inline Statistics StatisticsOf(const std::vector<double>& x, int64_t C, Norm norm, double eps) {
  Statistics rows;
  for (size_t begin = 0; begin < x.size(); begin += C) {
    double mean = 0.0, squares = 0.0;
    for (int64_t c = 0; c < C && norm == Norm::kLayer; ++c) mean += x[begin + c];
    mean /= static_cast<double>(C);
    for (int64_t c = 0; c < C; ++c) squares += (x[begin + c] - mean) * (x[begin + c] - mean);
    rows.mean.push_back(mean);
    rows.r.push_back(1.0 / std::sqrt(squares / static_cast<double>(C) + eps));
  }
  return rows;
}
inline Statistics StatisticsOf(const Matrix& x, Norm norm, float eps) {
  return StatisticsOf(Dense(x), x.C(), norm, static_cast<double>(eps));
}

inline Reference Normalized(const Matrix& x, const Statistics& rows) {
  return Map(x, [&](int64_t i, int64_t c) { return (x.At(i, c) - rows.mean[i]) * rows.r[i]; });
}

// sum(weights * normalise(x)), a loss to differentiate.
inline double WeightedNorm(const std::vector<double>& x, int64_t C, Norm norm,
                           const std::vector<double>& weights) {
  const Statistics rows = StatisticsOf(x, C, norm, static_cast<double>(kEps));
  double loss = 0.0;
  for (size_t k = 0; k < x.size(); ++k) {
    const size_t i = k / C;
    loss += weights[k] * (x[k] - rows.mean[i]) * rows.r[i];
  }
  return loss;
}

// dx by the header's formula, from a dense dxhat and xhat.
inline Reference InputGradient(const Reference& dxhat, const Reference& xhat, const Matrix& r,
                               int64_t C, Norm norm) {
  Reference dx(xhat.size());
  for (size_t begin = 0; begin < xhat.size(); begin += C) {
    double dot = 0.0, sum = 0.0;
    for (size_t k = begin; k < begin + C; ++k) {
      dot += dxhat[k] * xhat[k] / static_cast<double>(C);
      sum += dxhat[k] / static_cast<double>(C);
    }
    if (norm == Norm::kRms) sum = 0.0;
    const double rstd = r.At(0, static_cast<int64_t>(begin) / C);
    for (size_t k = begin; k < begin + C; ++k) dx[k] = rstd * (dxhat[k] - sum - xhat[k] * dot);
  }
  return dx;
}
inline Reference InputGradient(const Matrix& dxhat, const Matrix& xhat, const Matrix& r,
                               Norm norm) {
  return InputGradient(Dense(dxhat), Dense(xhat), r, xhat.C(), norm);
}
inline Reference ExactInputGradient(const Matrix& dxhat, const Reference& xhat, const Matrix& r,
                                    Norm norm) {
  return InputGradient(Dense(dxhat), xhat, r, dxhat.C(), norm);
}

// The body once per dtype, height, width and norm.
template <typename Body>
void ForShapes(const Body& body) {
  for (Norm norm : kNorms) {
    SCOPED_TRACE(testing::Message() << "norm " << static_cast<int>(norm));
    ForMatrices([&](int64_t N, int64_t C, DType dtype) { body(N, C, dtype, norm); });
  }
}

}  // namespace snug::kernels

#endif  // TESTS_KERNELS_NORM_TESTING_H_

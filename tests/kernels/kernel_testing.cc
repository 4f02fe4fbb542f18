// Test tensors and comparisons.
#include "tests/kernels/kernel_testing.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/by_type.h"
#include "kernels/cpu/loops/loops.h"

namespace snug::kernels {
namespace {

constexpr uint8_t kGap = 0xA5;
constexpr int64_t kAligned = 16;  // Bytes.

}  // namespace

Matrix::Matrix(int64_t N, int64_t C, DType dtype)
    : N_(N),
      C_(C),
      stride_(C % 8 == 0 ? C + 8 : (C + 5) | 1),
      offset_(C % 8 == 0 ? kAligned : SizeOf(dtype)),
      dtype_(dtype) {
  storage_.assign((N * stride_ + 2) * SizeOf(dtype) + offset_, kGap);
  for (int64_t i = 0; i < N; ++i) LeaveUnwritten(row(i), static_cast<size_t>(C * SizeOf(dtype)));
}

Matrix& Matrix::Fill(uint32_t seed, double scale) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.0, scale);
  for (int64_t i = 0; i < N_; ++i) {
    for (int64_t c = 0; c < C_; ++c) Set(i, c, normal(engine));
  }
  return *this;
}

void Matrix::Set(int64_t i, int64_t c, double value) {
  WaitForKernels();
  ByType(dtype_, [&](auto element) {
    element = Narrow<decltype(element)>(static_cast<float>(value));
    memcpy(storage_.data() + offset_ + (i * stride_ + c) * SizeOf(dtype_), &element,
           sizeof(element));
  });
}

double Matrix::At(int64_t i, int64_t c) const {
  WaitForKernels();
  return ByType(dtype_, [&](auto element) -> double {
    memcpy(&element, storage_.data() + offset_ + (i * stride_ + c) * SizeOf(dtype_),
           sizeof(element));
    return ToFloat(element);
  });
}

const Bytes& Matrix::bytes() const {
  WaitForKernels();
  return storage_;
}

bool Matrix::GapsUntouched() const {
  WaitForKernels();
  std::vector<bool> used(storage_.size(), false);
  for (int64_t i = 0; i < N_; ++i) {
    const int64_t begin = offset_ + i * stride_ * SizeOf(dtype_);
    std::fill_n(used.begin() + begin, C_ * SizeOf(dtype_), true);
  }
  for (size_t byte = 0; byte < storage_.size(); ++byte) {
    if (!used[byte] && storage_[byte] != kGap) return false;
  }
  return true;
}

Reference Map(const Matrix& shape, const std::function<double(int64_t, int64_t)>& element) {
  Reference reference;
  for (int64_t i = 0; i < shape.N(); ++i) {
    for (int64_t c = 0; c < shape.C(); ++c) reference.push_back(element(i, c));
  }
  return reference;
}

std::vector<double> Dense(const Matrix& m) {
  return Map(m, [&](int64_t i, int64_t c) { return m.At(i, c); });
}

double RelativeError(const Matrix& actual, const Reference& expected) {
  double error = 0.0, norm = 0.0;
  for (int64_t k = 0; k < static_cast<int64_t>(expected.size()); ++k) {
    error += std::pow(actual.At(k / actual.C(), k % actual.C()) - expected[k], 2);
    norm += expected[k] * expected[k];
  }
  return norm == 0.0 ? std::sqrt(error) : std::sqrt(error / norm);
}

double UnitOf(DType dtype) {
  constexpr double kUnits[] = {0x1p-24, 0x1p-8, 0x1p-11};
  return kUnits[static_cast<int>(dtype)];
}

void ExpectClose(const Matrix& actual, const Reference& expected, double units) {
  ASSERT_EQ(static_cast<int64_t>(expected.size()), actual.N() * actual.C());
  EXPECT_TRUE(actual.GapsUntouched());
  const double unit = UnitOf(actual.dtype());
  const double least = actual.dtype() == DType::kF16 ? 0x1p-25 : 0.0;  // Half a subnormal step.
  double largest = 0.0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (int64_t k = 0; k < static_cast<int64_t>(expected.size()); ++k) {
    const int64_t i = k / actual.C(), c = k % actual.C();
    // Negated, so that NaN fails.
    if (!(std::abs(actual.At(i, c) - expected[k]) <=
          units * std::max(unit * std::abs(expected[k]), least) + 2e-6 * largest)) {
      ADD_FAILURE() << "element (" << i << ", " << c << ") of (" << actual.N() << ", " << actual.C()
                    << ") is " << actual.At(i, c) << " instead of " << expected[k];
      return;
    }
  }
  if (actual.dtype() == DType::kF32) {
    EXPECT_LE(RelativeError(actual, expected), 1e-6);
  }
}

SharedVector<int32_t> RepeatingIds(int64_t N, int64_t below) {
  SharedVector<int32_t> ids;
  for (int64_t i = 0; i < N; ++i) ids.push_back(static_cast<int32_t>(i * i % below));
  return ids;
}

Reference FiniteDifferences(std::vector<double> x,
                            const std::function<double(const std::vector<double>&)>& f) {
  constexpr double kStep = 1e-5;
  Reference gradient;
  for (double& element : x) {
    const double kept = element;
    element = kept + kStep;
    const double above = f(x);
    element = kept - kStep;
    gradient.push_back((above - f(x)) / (2.0 * kStep));
    element = kept;
  }
  return gradient;
}

void OnEachInstructionSet(const std::function<void()>& body) {
  if (!OnCpu()) return body();
  const Loops& best = BestLoops();
  for (InstructionSet isa : {InstructionSet::kBaseline, InstructionSet::kAvx2,
                             InstructionSet::kAvx512, InstructionSet::kAvx512Bf16}) {
    const Loops* loops = LoopsOf(isa);
    if (loops == nullptr) continue;
    UseLoops(*loops);
    SCOPED_TRACE(loops->name);
    body();
  }
  UseLoops(best);
}

void ExpectSameBitsEveryWay(const std::function<Bytes()>& op) {
  if (!OnCpu()) {
    const Bytes first = op(), second = op();
    EXPECT_TRUE(first == second);
    return;
  }
  const int threads_before = omp_get_max_threads();
  Bytes first;
  OnEachInstructionSet([&] {
    for (int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      const Bytes bytes = op();
      if (first.empty()) first = bytes;
      EXPECT_TRUE(bytes == first) << threads << " threads";
    }
  });
  omp_set_num_threads(threads_before);
}

std::string Name(const Error& error) {
  return std::string(ToString(error.code)) + ": " + error.parameter;
}

}  // namespace snug::kernels

// Rows more than 2^31 elements apart: no index of a row is 32-bit. The memory is mapped and mostly
// never touched, so it is the CPU's alone; CUDA's index arithmetic is the same 64-bit products.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>

#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/glu.h"
#include "kernels/normalize.h"
#include "tests/kernels/kernel_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kStride = (int64_t{1} << 31) + 5, kRows = 3, kC = 37;

// Rows of fp32, kStride elements apart.
class FarRows {
 public:
  FarRows()
      : rows_(static_cast<float*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~FarRows() { munmap(rows_, kBytes); }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;

  bool mapped() const { return rows_ != MAP_FAILED; }
  float* data() { return rows_; }
  float& at(int64_t i, int64_t c) { return rows_[i * kStride + c]; }

 private:
  static constexpr size_t kBytes = (kRows * kStride) * sizeof(float);
  float* rows_;
};

class FarRowsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!x_.mapped() || !y_.mapped() || !z_.mapped()) GTEST_SKIP() << "no address space for it";
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t c = 0; c < kC; ++c) x_.at(i, c) = near_.floats()[i * near_.stride() + c];
    }
  }
  void ExpectNear(FarRows& far, Matrix& near) {
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t c = 0; c < kC; ++c) {
        ASSERT_EQ(static_cast<double>(far.at(i, c)), near.At(i, c)) << i << ", " << c;
      }
    }
  }

  FarRows x_, y_, z_;
  Matrix near_ = Matrix(kRows, kC).Fill(1), near_y_ = Matrix(kRows, kC);
};

TEST_F(FarRowsTest, NormalizeAddsAndScalesThem) {
  Matrix gamma(1, kC), h(kRows, kC);
  gamma.Fill(2);
  NormalizeForwardParams p = {.x = x_.data(),
                              .N = kRows,
                              .C = kC,
                              .x_stride = kStride,
                              .norm = Norm::kLayer,
                              .residual = x_.data(),
                              .h = y_.data(),
                              .residual_stride = kStride,
                              .h_stride = kStride,
                              .z = z_.data(),
                              .gamma = gamma.data(),
                              .z_stride = kStride};
  ASSERT_TRUE(NormalizeForward(p, nullptr).ok());
  p.x = p.residual = near_.data();
  p.h = h.data();
  p.z = near_y_.data();
  p.x_stride = p.residual_stride = near_.stride();
  p.h_stride = h.stride();
  p.z_stride = near_y_.stride();
  ASSERT_TRUE(NormalizeForward(p, nullptr).ok());
  ExpectNear(y_, h);
  ExpectNear(z_, near_y_);
}

TEST_F(FarRowsTest, ActivationsReadAndWriteThem) {
  ActivationForwardParams p = {.x = x_.data(),
                               .y = y_.data(),
                               .N = kRows,
                               .C = kC,
                               .x_stride = kStride,
                               .y_stride = kStride,
                               .activation = Activation::kGelu};
  ASSERT_TRUE(ActivationForward(p, nullptr).ok());
  p.x = near_.data();
  p.y = near_y_.data();
  p.x_stride = near_.stride();
  p.y_stride = near_y_.stride();
  ASSERT_TRUE(ActivationForward(p, nullptr).ok());
  ExpectNear(y_, near_y_);
}

TEST_F(FarRowsTest, GatedUnitsReadAndWriteThem) {
  GluForwardParams p = {.g = x_.data(),
                        .u = x_.data(),
                        .p = y_.data(),
                        .N = kRows,
                        .C = kC,
                        .g_stride = kStride,
                        .u_stride = kStride,
                        .p_stride = kStride};
  ASSERT_TRUE(GluForward(p, nullptr).ok());
  p.g = p.u = near_.data();
  p.p = near_y_.data();
  p.g_stride = p.u_stride = near_.stride();
  p.p_stride = near_y_.stride();
  ASSERT_TRUE(GluForward(p, nullptr).ok());
  ExpectNear(y_, near_y_);
}

TEST_F(FarRowsTest, DropoutReadsAndWritesThem) {
  DropoutParams p = {.x = x_.data(),
                     .y = y_.data(),
                     .N = kRows,
                     .C = kC,
                     .x_stride = kStride,
                     .y_stride = kStride,
                     .rate = 0.5};
  ASSERT_TRUE(Dropout(p, nullptr).ok());
  p.x = near_.data();
  p.y = near_y_.data();
  p.x_stride = near_.stride();
  p.y_stride = near_y_.stride();
  ASSERT_TRUE(Dropout(p, nullptr).ok());
  ExpectNear(y_, near_y_);
}

}  // namespace
}  // namespace snug::kernels

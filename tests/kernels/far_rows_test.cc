// Rows more than 2^31 elements apart give what the same rows side by side give, byte for byte: no
// index of a row, and no product with a stride, is 32-bit.
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/kernels/strided_testing.h"

namespace snug::kernels {
namespace {

// Elements one by one, and wide accesses.
struct Width {
  int64_t C;
  DType dtype;
};
constexpr Width kCases[] = {{37, DType::kF32}, {64, DType::kF32}, {64, DType::kBF16}};

class FarRowsTest : public testing::TestWithParam<std::tuple<StridedOp, Width>> {};
std::string NameOf(const testing::TestParamInfo<FarRowsTest::ParamType>& info) {
  const auto& [op, width] = info.param;
  return std::string(op.name) + std::to_string(width.C) +
         (width.dtype == DType::kF32 ? "F32" : "BF16");
}
INSTANTIATE_TEST_SUITE_P(Layers, FarRowsTest,
                         testing::Combine(testing::ValuesIn(StridedLayerOps()),
                                          testing::ValuesIn(kCases)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Storage, FarRowsTest,
                         testing::Combine(testing::ValuesIn(StridedStorageOps()),
                                          testing::ValuesIn(kCases)),
                         NameOf);

TEST_P(FarRowsTest, GiveWhatNearOnesGive) {
  const auto& [op, width] = GetParam();
  if (SparseMemory(1).data() == nullptr) GTEST_SKIP() << "no memory that is mostly not used";
  Operands near(Layout::kAligned, width.C, width.dtype), far(Layout::kFar, width.C, width.dtype);
  const Error near_error = op.call(near);
  ASSERT_TRUE(near_error.ok()) << ToString(near_error.code) << ": " << near_error.parameter;
  const Error far_error = op.call(far);
  if (!far.has_memory()) GTEST_SKIP() << "no room for memory that is mostly not used";
  ASSERT_TRUE(far_error.ok()) << ToString(far_error.code) << ": " << far_error.parameter;
  ASSERT_EQ(near.Before(), far.Before());
  EXPECT_NE(near.Now(), near.Before()) << "the op wrote nothing";
  EXPECT_EQ(near.Now(), far.Now());
}

// The control: an op that computes the place of a row in 32 bits is found.
Error CopyWith32Bits(Operands& o) {
  float *x = nullptr, *y = nullptr;
  int64_t x_stride = 0, y_stride = 0;
  o.Rows(x, x_stride);
  o.Rows(y, y_stride);
  for (int64_t i = 0; o.has_memory() && i < kStridedRows; ++i) {
    y[i * y_stride] = x[static_cast<int32_t>(i * x_stride)];
  }
  return {};
}

TEST(FarRowsControlTest, FindsARowsPlaceIn32Bits) {
  if (!OnCpu()) GTEST_SKIP();
  const auto same = [](const StridedOp& op) {
    Operands near(Layout::kAligned, 37, DType::kF32), far(Layout::kFar, 37, DType::kF32);
    EXPECT_TRUE(op.call(near).ok());
    EXPECT_TRUE(op.call(far).ok());
    return !far.has_memory() || near.Now() == far.Now();
  };
  EXPECT_FALSE(same({"CopyWith32Bits", CopyWith32Bits}));
}

}  // namespace
}  // namespace snug::kernels

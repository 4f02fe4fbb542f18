// Where operands lie changes nothing: rows side by side and aligned to 16 bytes, the same where the
// allocation ends with the last of them (so that a read behind it shows to the emulation and to
// AddressSanitizer), and rows an odd stride apart that are aligned as their elements are, give the
// same bits, for every op that takes strides, at sizes that no vector divides. What lies between
// rows and around them stays as it was.
// (That the bits are right is for each op's own test.)
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/kernels/strided_testing.h"

namespace snug::kernels {
namespace {

class LayoutsTest : public testing::TestWithParam<StridedOp> {};
constexpr auto kName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Layers, LayoutsTest, testing::ValuesIn(StridedLayerOps()), kName);
INSTANTIATE_TEST_SUITE_P(Storage, LayoutsTest, testing::ValuesIn(StridedStorageOps()), kName);

// A head of rope without a pair, or one that is wider than attention takes on a stream.
bool IsNoHead(const Error& error, int64_t C) {
  const std::string parameter = error.parameter;
  return error.code == ErrorCode::kBadShape &&
         ((C == 1 && parameter == "heads") || (C == 4097 && parameter == "D"));
}

TEST_P(LayoutsTest, GiveTheSameBits) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (int64_t C : {1, 31, 33, 127, 4097}) {
      if (!OnCpu() && C == 4097 && dtype != DType::kBF16) continue;  // The emulation takes long.
      SCOPED_TRACE(testing::Message() << C << " of type " << static_cast<int>(dtype));
      Operands aligned(Layout::kAligned, C, dtype), bad(Layout::kBad, C, dtype);
      const Error error = GetParam().call(aligned);
      if (IsNoHead(error, C)) continue;
      ASSERT_TRUE(error.ok()) << ToString(error.code) << ": " << error.parameter;
      ASSERT_TRUE(GetParam().call(bad).ok());
      // A gradient through a layer norm of one element is 0.
      EXPECT_TRUE(C == 1 || aligned.Now() != aligned.Before()) << "the op wrote nothing";
      EXPECT_TRUE(aligned.GapsUntouched());
      EXPECT_TRUE(bad.GapsUntouched());
      EXPECT_TRUE(aligned.Now() == bad.Now());
      Operands flush(Layout::kFlush, C, dtype);
      const Error flush_error = GetParam().call(flush);
      EXPECT_TRUE(flush_error.ok()) << ToString(flush_error.code) << ": " << flush_error.parameter;
      EXPECT_TRUE(flush.GapsUntouched());
      EXPECT_TRUE(aligned.Now() == flush.Now());
    }
  }
}

// The control: an op that writes one element behind its last row is seen.
TEST(LayoutsControlTest, SeesAWriteBehindARow) {
  for (Layout layout : {Layout::kAligned, Layout::kBad}) {
    Operands operands(layout, 31, DType::kF32);
    float* y = nullptr;
    int64_t stride = 0;
    operands.Rows(y, stride);
    y[2 * stride + 30] = 1.0f;
    EXPECT_TRUE(operands.GapsUntouched());
    y[2 * stride + 31] = 1.0f;
    EXPECT_FALSE(operands.GapsUntouched());
  }
}

}  // namespace
}  // namespace snug::kernels

// Bad arguments: each op, called well but for one thing, returns an error that names it, and writes
// nothing. That every op is here is checked by kernels_readme_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/kernels/kernel_testing.h"
#include "tests/kernels/refusals_testing.h"

namespace snug::kernels {
namespace {

constexpr int64_t kC = 64;

class RefusalsTest : public testing::TestWithParam<RefusedOp> {
 protected:
  Error Call(Operands& operands) const {
    for (const auto& ops : {StridedLayerOps(), StridedStorageOps(), FlatOps()}) {
      for (const StridedOp& op : ops) {
        if (op.name == GetParam().op) return op.call(operands);
      }
    }
    return {ErrorCode::kBadValue, "no entry for this op"};
  }
};
constexpr auto kName = [](const auto& info) { return info.param.op; };
INSTANTIATE_TEST_SUITE_P(Layers, RefusalsTest, testing::ValuesIn(RefusedLayerOps()), kName);
INSTANTIATE_TEST_SUITE_P(Storage, RefusalsTest, testing::ValuesIn(RefusedStorageOps()), kName);

bool IsHere(Where where) { return where == Where::kAnywhere || (where == Where::kCpu) == OnCpu(); }

// "bad stride: x_stride" by "bad stride: activation.x_stride".
bool Fits(const Error& error, const std::string& says) {
  const std::string code = std::string(ToString(error.code)) + ": ", name = error.parameter;
  return !name.empty() &&
         (says == code + name || (says.starts_with(code) && says.ends_with("." + name)));
}

TEST_P(RefusalsTest, NameWhatIsWrongAndWriteNothing) {
  Operands good(Layout::kAligned, kC, DType::kBF16);
  const Error none = Call(good);
  ASSERT_TRUE(none.ok()) << Name(none);
  EXPECT_NE(good.Now(), good.Before()) << "the op wrote nothing";
  for (const Refusal& refusal : GetParam().refusals) {
    if (!IsHere(refusal.where)) continue;
    Operands bad(Layout::kAligned, kC, DType::kBF16);
    bad.BeforeRun(refusal.change);
    const Error error = Call(bad);
    EXPECT_TRUE(Fits(error, refusal.says)) << '"' << Name(error) << "\", not " << refusal.says;
    EXPECT_EQ(bad.Now(), bad.Before()) << refusal.says;
    EXPECT_TRUE(bad.GapsUntouched()) << refusal.says;
  }
}

// The controls: an error of another parameter, of another kind, or of none does not fit.
TEST(RefusalsControlTest, ErrorsMustFit) {
  EXPECT_TRUE(Fits({ErrorCode::kBadStride, "x_stride"}, "bad stride: x_stride"));
  EXPECT_TRUE(Fits({ErrorCode::kBadStride, "x_stride"}, "bad stride: norm.x_stride"));
  EXPECT_FALSE(Fits({ErrorCode::kBadStride, "stride"}, "bad stride: x_stride"));
  EXPECT_FALSE(Fits({ErrorCode::kBadShape, "x_stride"}, "bad stride: x_stride"));
  EXPECT_FALSE(Fits({ErrorCode::kBadStride, ""}, "bad stride: x_stride"));
  EXPECT_FALSE(Fits({}, "bad stride: x_stride"));
}

}  // namespace
}  // namespace snug::kernels

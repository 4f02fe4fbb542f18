// Ops whose backward takes a sample of an input's rows in its place.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tests/worker/execute/op_testing.h"
#include "worker/execute/ops/sample.h"
#include "worker/program/stash.h"

namespace snug::execute {
namespace {

// A linear whose weight's gradient is estimated from a sample of its input's rows.
class SampledProduct {
 public:
  static constexpr int64_t kRows = 96, kIn = 12, kOut = 7, kKept = 29;

  // `op`: linear, or lora_down, whose weight is A.
  SampledProduct(Op op, const char* estimator)
      : op_(std::move(op)), stash_(*program::SampledBy(0.3, estimator)) {
    // Norms of a lognormal law, and a common direction, so that the gradient is no noise itself.
    const auto rows = [](int64_t width) {
      const Tensor x = torch::randn({kRows, width}) + 0.7;
      return (x * torch::exp(0.8 * torch::randn({kRows, 1}))).contiguous();
    };
    z_ = rows(kIn);
    dy_ = rows(kOut);
    weight_ = torch::randn({kOut, kIn});
    const program::Operand form =
        program::FormOf(stash_, {.width = kIn, .dtype = program::DType::kF32});
    EXPECT_EQ(form.RowsOf(kRows), kKept);
    form_ = torch::zeros({kKept, form.width}, torch::kByte);
  }

  // The estimate by the draw of a step; unweighted: each kept row counts once. The op's own draws
  // are the same always.
  Tensor Estimate(int64_t step, bool weighted = true) {
    OpRun draw = Run(program::PackOf(stash_), step);
    draw.in[0] = ViewOf(z_);
    draw.out[0] = FormView();
    OpFunctionsOfKernels()[static_cast<size_t>(OpCode::kSampleRows)].forward(draw);
    if (!weighted) std::fill_n(SampleIn(FormView(), kIn).weights, kKept, 1.0f);
    return Gradients(FormView()).first;
  }
  Tensor Exact() { return Gradients(ViewOf(z_)).first; }
  // Those of z, from the sample and from all rows.
  std::pair<Tensor, Tensor> InputGradients() {
    Estimate(0);
    return {Gradients(FormView()).second, Gradients(ViewOf(z_)).second};
  }

  // The variance of the paper's estimator by the norms of z, relative to the exact gradient.
  double ClosedForm() const {
    const Tensor h = z_.to(torch::kFloat64), g = dy_.to(torch::kFloat64);
    const Tensor scores = h.norm(2, {1});
    const auto [sorted, order] = scores.sort(0, /*descending=*/true);
    int64_t certain = 0;
    while (sorted[certain].item<double>() * static_cast<double>(kKept - certain) >
           sorted.slice(0, certain).sum().item<double>())
      ++certain;
    const Tensor rest = order.slice(0, certain);
    const auto of = [&](const Tensor& x) { return x.index_select(0, rest); };
    const Tensor share = of(scores) / of(scores).sum();
    const Tensor squares = of(h).square().sum(1) * of(g).square().sum(1) / share;
    const Tensor mean = torch::matmul(of(g).t(), of(h)), all = torch::matmul(g.t(), h);
    return ((squares.sum() - mean.square().sum()) / static_cast<double>(kKept - certain) /
            all.square().sum())
        .item<double>();
  }

 private:
  View FormView() const { return {form_.data_ptr(), kKept, form_.size(1), program::DType::kU8}; }
  OpRun Run(const Op* op, int64_t step) const {
    OpRun run;
    run.op = op;
    run.device = &TestDevice();
    run.scalars = {.seed = 11, .step = step};
    return run;
  }
  std::pair<Tensor, Tensor> Gradients(const View& input) {
    Tensor dw = torch::zeros({kOut, kIn}), dz = torch::zeros({kRows, kIn});
    OpRun run = Run(&op_, /*step=*/3);
    run.in[0] = input;
    run.d_out[0] = ViewOf(dy_);
    run.d_in[0] = ViewOf(dz);
    run.parameters[0] = {ViewOf(weight_), ViewOf(dw)};
    OpFunctionsOfKernels()[static_cast<size_t>(op_.code)].backward(run);
    return {dw, dz};
  }

  const Op op_;
  const program::SiteStash stash_;
  Tensor z_, dy_, weight_, form_;
};

// Of `draws` estimates: how far their mean is from the exact gradient, and their variance, both
// relative to it.
std::pair<double, double> BiasAndVariance(SampledProduct& product, int draws, bool weighted) {
  const Tensor exact = product.Exact().to(torch::kFloat64);
  Tensor sum = torch::zeros_like(exact);
  double squares = 0.0;
  for (int i = 0; i < draws; ++i) {
    const Tensor off = product.Estimate(i, weighted).to(torch::kFloat64) - exact;
    sum += off;
    squares += off.square().sum().item<double>();
  }
  return {(sum / draws).norm().item<double>() / exact.norm().item<double>(),
          squares / draws / exact.square().sum().item<double>()};
}

// WTA-5 and WTA-6 through the ops; control: without the weights the mean is another one.
TEST(OpsTest, Wta5Wta6SampledGradientsAreUnbiasedWithinTheClosedForm) {
  constexpr int kDraws = 3000;
  torch::manual_seed(5);
  for (const char* estimator : {"pps", "wta"}) {
    for (const OpCode code : {OpCode::kLinear, OpCode::kLoraDown}) {
      SampledProduct product(OpOf(code), estimator);
      const double closed = product.ClosedForm();
      const auto [bias, variance] = BiasAndVariance(product, kDraws, /*weighted=*/true);
      const double chance = std::sqrt(closed / kDraws);
      EXPECT_LE(bias, 1.4 * chance) << estimator;
      EXPECT_LE(variance, 1.08 * closed) << estimator;
      EXPECT_GE(variance, std::string(estimator) == "wta" ? 0.92 * closed : 0.0);
      EXPECT_GT(BiasAndVariance(product, kDraws, /*weighted=*/false).first, 10.0 * chance);
    }
  }
}

// WTA-15: dropout's mask of a kept row is that of its place.
TEST(OpsTest, Wta15ASampleOfDroppedRowsIsUnbiased) {
  constexpr int kDraws = 3000;
  torch::manual_seed(6);
  SampledProduct product(OpOf(OpCode::kLoraDown, {.dropout = 0.4}), "pps");
  const auto [bias, variance] = BiasAndVariance(product, kDraws, /*weighted=*/true);
  EXPECT_LE(bias, 1.4 * std::sqrt(variance / kDraws));
}

// WTA-10: what goes on to the ops before is exact.
TEST(OpsTest, Wta10TheInputsGradientKnowsNoSample) {
  torch::manual_seed(7);
  for (const OpCode code : {OpCode::kLinear, OpCode::kLoraDown}) {
    const auto [sampled, exact] = SampledProduct(OpOf(code), "pps").InputGradients();
    EXPECT_TRUE(torch::equal(sampled, exact));
  }
}

}  // namespace
}  // namespace snug::execute

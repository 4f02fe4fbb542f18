// Ops whose backward takes codes of two bits in the place of an activation's input.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "gtest/gtest.h"
#include "tests/worker/execute/op_testing.h"
#include "worker/program/stash.h"

namespace snug::execute {
namespace {

// LowMemoryBP's combinations of three ReLUs, a_i and c_i as the paper's kernels have them; of the
// tanh form of GELU, the fit of kernels/fit_two_bit.py.
struct ThreeRelus {
  double a[3], c[3];

  Tensor Slope(const Tensor& x) const {
    Tensor slope = torch::zeros_like(x);
    for (int i = 0; i < 3; ++i) slope = slope + a[i] * (x > c[i]).to(torch::kFloat64);
    return slope;
  }
  // With the levels of the two middle codes exchanged: what nobody may take for the slope.
  Tensor Permuted(const Tensor& x) const {
    const Tensor slope = Slope(x);
    const Tensor low = (x > c[0]) & (x <= c[1]), high = (x > c[1]) & (x <= c[2]);
    return slope.masked_fill(low, a[0] + a[1]).masked_fill(high, a[0]);
  }
};

ThreeRelus RelusOf(program::Activation activation) {
  if (activation == program::Activation::kGeluTanh)
    return {{-0.0497861, 1.0995722, -0.0497861}, {-3.1628800, 0.0, 3.1628800}};
  return {{-0.04060357190528599, 1.080925428529668, -0.040321856624382146},
          {-6.3050461001646445, -0.0008684942046214787, 6.325815242089708}};
}

Tensor Activated(program::Activation activation, const Tensor& x) {
  return activation == program::Activation::kSilu ? torch::silu(x) : torch::gelu(x, "tanh");
}

// Forward writes the form behind its output, backward reads it in the place of input 0. Returns
// the inputs' gradients.
Tensors BackwardFromTwoBits(Fp32Run& fp32, int64_t form_width, const Tensor& dy) {
  Tensor form = torch::full({N(), form_width}, 0x5a, torch::kByte);
  const View held = {form.data_ptr(), N(), form_width, program::DType::kU8};
  OpRun run = fp32.Run();
  run.out[1] = held;
  fp32.Functions().forward(run);
  Tensor d_out = dy.to(torch::kFloat32).contiguous();
  run.out = {};
  run.d_out[0] = ViewOf(d_out);
  run.in[0] = held;
  Tensors d_in;
  for (size_t i = 0; i < fp32.in().size(); ++i) d_in.push_back(Poisoned(fp32.in()[i]));
  for (size_t i = 0; i < d_in.size(); ++i) run.d_in[i] = ViewOf(d_in[i]);
  fp32.Functions().backward(run);
  return d_in;
}

// The gate's slope is that of three ReLUs, up's gradient the exact one; forward is exact.
TEST(OpsTest, Lmbp5TwoBitsGiveTheSlopesOfThreeRelus) {
  torch::manual_seed(4);
  for (const auto activation : {program::Activation::kSilu, program::Activation::kGeluTanh}) {
    for (const OpCode code : {OpCode::kGlu, OpCode::kActivation}) {
      const bool gated = code == OpCode::kGlu;
      const Tensor x = Random({N(), 33}) * 3.0, up = Random({N(), 33}), dy = Random({N(), 33});
      const Case c{program::RowOf(code).name,
                   OpOf(code, {.activation = activation}),
                   gated ? Tensors{x, up} : Tensors{x},
                   {},
                   [=](const Tensors& in, const Tensors&) {
                     const Tensor h = Activated(activation, in[0]);
                     return Tensors{gated ? h * in[1] : h};
                   }};
      Fp32Run run(c);
      const program::Operand form = program::FormOf(
          program::Stash::kTwoBit, {.width = 33, .dtype = program::DType::kF32}, &c.op);
      EXPECT_EQ(form.width, 9 + (gated ? 33 * 4 : 0));
      const Tensors d_in = BackwardFromTwoBits(run, form.width, dy);
      EXPECT_LE(Error(run.out()[0], c.reference(c.inputs, {})[0]), kTolerance) << c.name;
      const Tensor factor = gated ? dy * up : dy;
      const ThreeRelus relus = RelusOf(activation);
      EXPECT_LE(Error(d_in[0], factor * relus.Slope(x)), kTolerance) << c.name;
      EXPECT_GT(Error(d_in[0], factor * relus.Permuted(x)), 0.5) << c.name;
      if (!gated) continue;
      EXPECT_LE(Error(d_in[1], dy * Activated(activation, x)), kTolerance);
    }
  }
}

}  // namespace
}  // namespace snug::execute

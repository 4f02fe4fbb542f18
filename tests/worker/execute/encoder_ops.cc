// Ops that encoders have and decoders have not, against LibTorch in float64: activations without a
// gate, LayerNorm's two ops, tables of positions; and dropout, whose mask is by the place among all
// rows.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/execute/op_testing.h"

namespace snug::execute {
namespace {

using program::Activation;

Tensor Activated(Activation activation, const Tensor& x) {
  if (activation == Activation::kGelu) return torch::gelu(x);
  return activation == Activation::kRelu ? torch::relu(x) : torch::tanh(x);
}

std::vector<Case> EncoderCases() {
  std::vector<Case> cases = {
      {"centred normalize",
       OpOf(OpCode::kNormalize, {.epsilon = 1e-5, .centred = true}),
       {Random({N(), 33}) * 3.0 + 1.0},
       {},
       [](const Tensors& in, const Tensors&) {
         const Tensor x = in[0] - in[0].mean(1, true);
         const Tensor r = (x.square().mean(1, true) + 1e-5).rsqrt();
         return Tensors{x * r, r};
       }},
      {"affine with beta",
       OpOf(OpCode::kAffine, {.bias = true}),
       {Random({N(), 33})},
       {Random({33}), Random({33})},
       [](const Tensors& in, const Tensors& w) { return Tensors{in[0] * w[0] + w[1]}; }},
      {"table of positions",
       OpOf(OpCode::kEmbedding, {.scale = 1.0, .ids = program::Ids::kPositions}),
       {},
       {Random({64, 12})},
       [](const Tensors&, const Tensors& w) {
         return Tensors{w[0].index_select(0, torch::tensor(Documents().positions))};
       }}};
  for (const Activation activation : {Activation::kGelu, Activation::kRelu, Activation::kTanh}) {
    cases.push_back(
        {"activation " + std::to_string(static_cast<int>(activation)),
         OpOf(OpCode::kActivation, {.activation = activation}),
         {Random({N(), 33}) * 2.0},
         {},
         [=](const Tensors& in, const Tensors&) { return Tensors{Activated(activation, in[0])}; }});
  }
  return cases;
}

Tensors Leaves(const Tensors& from) {
  Tensors leaves;
  for (const Tensor& t : from) leaves.push_back(t.detach().clone().requires_grad_(true));
  return leaves;
}

TEST(OpsTest, EncodersOpsAreTheExpressionAndItsAutograd) {
  torch::manual_seed(7);
  for (const Case& c : EncoderCases()) {
    const Tensors inputs = Leaves(c.inputs), parameters = Leaves(c.parameters);
    const Tensor y = c.reference(inputs, parameters)[0];
    const Tensor dy = Random({y.size(0), y.size(1)});
    Tensors leaves = inputs;
    leaves.insert(leaves.end(), parameters.begin(), parameters.end());
    const Tensors want = torch::autograd::grad({y}, leaves, {dy});
    Fp32Run run(c);
    run.Forward();
    EXPECT_LE(Error(run.out()[0], y.detach()), kTolerance) << c.name;
    const Tensors d_in = run.Backward({dy});
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LE(Error(d_in[i], want[i]), kTolerance) << c.name << " input " << i;
    for (size_t i = 0; i < parameters.size(); ++i)
      EXPECT_LE(Error(run.parameter_gradients()[i], want[inputs.size() + i]), kTolerance)
          << c.name << " parameter " << i;
  }
}

// Two tokens of their own in front of each image's patches.
TEST(OpsTest, PatchEmbeddingIsAConvolutionBehindTokens) {
  constexpr int64_t kImages = 3, kSpecial = 2, kSide = 4, kSize = 5, kChannels = 3, kWidth = 11;
  constexpr int64_t kTokens = kSide * kSide + kSpecial, kPatch = kChannels * kSize * kSize;
  torch::manual_seed(12);
  const Tensor images = Random({kImages, kChannels, kSide * kSize, kSide * kSize});
  Tensor patches = images.unfold(2, kSize, kSize).unfold(3, kSize, kSize);
  patches = patches.permute({0, 2, 3, 1, 4, 5}).reshape({kImages, kSide * kSide, kPatch});
  patches = torch::cat({torch::zeros({kImages, kSpecial, kPatch}, torch::kFloat64), patches}, 1);
  const Tensor rows = patches.reshape({-1, kPatch}).to(torch::kFloat32).contiguous();
  Case c = {"patch embedding",
            OpOf(OpCode::kPatchEmbedding, {.patch_width = kPatch}),
            {},
            {Random({kWidth, kPatch}), Random({kWidth}), Random({kWidth}), Random({kWidth})},
            [&](const Tensors&, const Tensors& w) {
              Tensor x = torch::conv2d(images, w[0].reshape({kWidth, kChannels, kSize, kSize}),
                                       w[1], kSize);
              x = x.flatten(2).transpose(1, 2);
              const auto token = [&](const Tensor& row) {
                return row.reshape({1, 1, kWidth}).expand({kImages, 1, kWidth});
              };
              return Tensors{torch::cat({token(w[2]), token(w[3]), x}, 1).reshape({-1, kWidth})};
            }};
  c.op.parameters = {0, 1, 2, 3};
  const Tensors parameters = Leaves(c.parameters);
  const Tensor x = c.reference({}, parameters)[0];
  const Tensor dx = Random({x.size(0), x.size(1)});
  const Tensors want = torch::autograd::grad({x}, parameters, {dx});
  Fp32Run test(c);
  const Batch batch = {
      .tokens = kImages * kTokens, .documents = kImages, .patches = rows.data_ptr()};
  OpRun run = test.Run();
  run.batch = &batch;
  test.Functions().forward(run);
  EXPECT_LE(Error(test.out()[0], x.detach()), kTolerance);
  const Tensor dx32 = dx.to(torch::kFloat32).contiguous();
  run.d_out[0] = ViewOf(dx32);
  test.Functions().backward(run);
  for (size_t i = 0; i < parameters.size(); ++i)
    EXPECT_LE(Error(test.parameter_gradients()[i], want[i]), kTolerance) << "parameter " << i;
}

Case DropoutCase() {
  return {"dropout",
          OpOf(OpCode::kDropout, {.dropout = 0.3}),
          {Random({N(), 64})},
          {},
          [](const Tensors& in, const Tensors&) { return Tensors{in[0]}; }};
}

TEST(OpsTest, DropoutUsesOneMaskForwardAndBackward) {
  torch::manual_seed(8);
  const Case c = DropoutCase();
  Fp32Run run(c);
  run.Forward();
  const Tensor kept = run.out()[0] != 0.0;
  EXPECT_LE(Error(run.out()[0], c.inputs[0] * kept / 0.7), kTolerance);
  EXPECT_NEAR(kept.to(torch::kFloat64).mean().item<double>(), 0.7,
              5.0 * std::sqrt(0.21 / static_cast<double>(kept.numel())));
  const Tensor dy = Random({N(), 64});
  EXPECT_LE(Error(run.Backward({dy})[0], dy * kept / 0.7), kTolerance);
  OpRun evaluation = run.Run();
  evaluation.scalars.dropout = false;
  run.Functions().forward(evaluation);
  EXPECT_TRUE(torch::equal(run.out()[0], run.in()[0]));
}

// In a loop each pass has a few of the rows, forward and backward.
TEST(OpsTest, DropoutOfAPassIsThatOfItsRows) {
  torch::manual_seed(9);
  const Case c = DropoutCase();
  Fp32Run whole(c), passes(c);
  whole.Forward();
  const Tensor dy = Random({N(), 64}).to(torch::kFloat32);
  const Tensor want = whole.Backward({dy})[0];
  const Tensor got = Poisoned(want);
  const int64_t part = N() / 3;
  for (int64_t first = 0; first < N(); first += part) {
    const int64_t rows = std::min(part, N() - first);
    OpRun run = passes.Run();
    run.first_row = first;
    run.in[0] = run.in[0].Rows(first, rows);
    run.out[0] = run.out[0].Rows(first, rows);
    passes.Functions().forward(run);
    run.d_out[0] = ViewOf(dy).Rows(first, rows);
    run.d_in[0] = ViewOf(got).Rows(first, rows);
    passes.Functions().backward(run);
  }
  EXPECT_TRUE(torch::equal(passes.out()[0], whole.out()[0]));
  EXPECT_TRUE(torch::equal(got, want));
}

}  // namespace
}  // namespace snug::execute

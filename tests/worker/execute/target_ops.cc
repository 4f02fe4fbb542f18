// The head's losses against numbers, of documents whose label is no class, against LibTorch's own
// in float64.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/execute/op_testing.h"

namespace snug::execute {
namespace {

constexpr int64_t kOutputs = 5;

// Row by row, weighted and scaled; rows of weight 0 get an exact zero.
void ExpectTargetLoss(program::Loss loss) {
  torch::manual_seed(9);
  const Case c{"head_loss",
               OpOf(OpCode::kHeadLoss, {.bias = true, .loss = loss}),
               {Random({N(), 12})},
               {Random({kOutputs, 12}), Random({kOutputs})},
               [](const Tensors&, const Tensors&) { return Tensors{}; }};
  const bool binary = loss == program::Loss::kBinary;
  const Tensor numbers = Random({N(), kOutputs});
  const Tensor targets = binary ? (numbers > 0).to(torch::kFloat64) : numbers.to(torch::kFloat32);
  Tensors leaves = {c.inputs[0].clone(), c.parameters[0].clone(), c.parameters[1].clone()};
  for (Tensor& leaf : leaves) leaf.requires_grad_(true);
  const Tensor logits = torch::matmul(leaves[0], leaves[1].t()) + leaves[2];
  const Tensor per_class =
      binary ? torch::binary_cross_entropy_with_logits(logits, targets, {}, {}, at::Reduction::None)
             : torch::mse_loss(logits, targets.to(torch::kFloat64), at::Reduction::None);
  const Tensor weights = torch::tensor(Documents().weights);
  const Tensor want_loss = kLossScale * (per_class.mean(1) * weights).sum();
  const Tensors want = torch::autograd::grad({want_loss}, leaves);

  const Tensor trained = targets.to(torch::kFloat32).index({weights != 0}).contiguous();
  const auto with_targets = [&](Fp32Run& run, Batch& batch) {
    OpRun op = run.Run();
    batch = *op.batch;
    batch.targets = trained.data_ptr<float>();
    op.batch = &batch;
    return op;
  };
  Batch batch;
  Fp32Run forward(c);
  OpRun asked = with_targets(forward, batch);
  const Tensor kept = Poisoned(torch::empty({trained.size(0), kOutputs}));
  batch.row_logits = kept.data_ptr<float>();
  forward.Functions().forward(asked);
  EXPECT_LE(Error(kept, logits.detach().index({weights != 0})), kTolerance);
  EXPECT_NEAR(forward.loss(), want_loss.item<double>(), 1e-6 * want_loss.item<double>());

  Fp32Run backward(c);
  OpRun run = with_targets(backward, batch);
  run.d_in[0] = run.in[0];
  backward.Functions().backward(run);
  EXPECT_EQ(backward.loss(), forward.loss());
  EXPECT_LE(Error(backward.in()[0], want[0]), kTolerance);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_LE(Error(backward.parameter_gradients()[i], want[i + 1]), kTolerance) << i;
}

TEST(OpsTest, HeadLossOfARegressionIsTheMeanSquare) { ExpectTargetLoss(program::Loss::kSquare); }

TEST(OpsTest, HeadLossOfSeveralLabelsIsBinaryCrossEntropy) {
  ExpectTargetLoss(program::Loss::kBinary);
}

}  // namespace
}  // namespace snug::execute

// Every op against LibTorch: its forward against the same expression in float64, its backward
// against float64 autograd of that expression. Also that adding into a gradient adds, and that what
// the op table allows to be written in place gives the same bits.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/worker/execute/op_testing.h"

namespace snug::execute {
namespace {

// The first 8 elements of each head of `width`.
Tensor Rotated(const Tensor& x, int64_t width = 8, bool local = false) {
  const auto table = [](const std::vector<float>& values) {
    return torch::tensor(values, torch::kFloat64).view({N(), 1, 4});
  };
  const TestBatch& batch = Documents();
  const Tensor heads = x.view({N(), -1, width});
  const Tensor first = heads.slice(2, 0, 4), second = heads.slice(2, 4, 8);
  const Tensor cos = table(local ? batch.local_cos : batch.cos);
  const Tensor sin = table(local ? batch.local_sin : batch.sin);
  return torch::cat({first * cos - second * sin, second * cos + first * sin, heads.slice(2, 8)}, 2)
      .reshape(x.sizes());
}

// Causal attention of each document by itself, scores and all.
Tensor Attended(const Tensors& qkv, const program::OpAttributes& a) {
  Tensors outputs;
  const auto& offsets = Documents().offsets;
  for (size_t d = 0; d + 1 < offsets.size(); ++d) {
    const int64_t tokens = offsets[d + 1] - offsets[d];
    const auto part = [&](const Tensor& x, int64_t count) {
      return x.slice(0, offsets[d], offsets[d + 1]).view({tokens, count, 8}).transpose(0, 1);
    };
    const Tensor q = part(qkv[0], a.heads);
    const Tensor k = part(qkv[1], a.kv_heads).repeat_interleave(a.heads / a.kv_heads, 0);
    const Tensor v = part(qkv[2], a.kv_heads).repeat_interleave(a.heads / a.kv_heads, 0);
    const Tensor all = torch::ones({tokens, tokens}, torch::kBool);
    Tensor hidden = all.triu(1);
    if (a.window > 0) hidden = hidden | all.tril(-a.window);
    Tensor scores = torch::matmul(q, k.transpose(1, 2)) * a.scale;
    if (a.softcap > 0.0) scores = torch::tanh(scores / a.softcap) * a.softcap;
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    outputs.push_back(
        torch::matmul(scores.softmax(-1), v).transpose(0, 1).reshape({tokens, a.heads * 8}));
  }
  return torch::cat(outputs, 0);
}

Case AttentionCase(int64_t heads, int64_t kv_heads, int64_t window = 0, double softcap = 0.0) {
  const program::OpAttributes attributes = {.heads = heads,
                                            .kv_heads = kv_heads,
                                            .head_width = 8,
                                            .scale = 0.4,
                                            .softcap = softcap,
                                            .window = window};
  return {"attention " + std::to_string(heads) + "/" + std::to_string(kv_heads) + ", window " +
              std::to_string(window) + ", softcap " + std::to_string(softcap),
          OpOf(OpCode::kAttention, attributes),
          {Random({N(), heads * 8}), Random({N(), kv_heads * 8}), Random({N(), kv_heads * 8})},
          {},
          [=](const Tensors& in, const Tensors&) {
            return Tensors{Attended(in, attributes), torch::zeros({N(), heads})};
          }};
}

Case ActivationCase(const char* name, program::Activation activation, bool gated) {
  return {name,
          OpOf(gated ? OpCode::kGlu : OpCode::kActivation, {.activation = activation}),
          gated ? Tensors{Random({N(), 33}) * 3.0, Random({N(), 33})} : Tensors{Random({N(), 33})},
          {},
          [=](const Tensors& in, const Tensors&) {
            const Tensor silu = torch::silu(in[0]), gelu = torch::gelu(in[0], "tanh");
            const Tensor& y = activation == program::Activation::kSilu ? silu : gelu;
            return Tensors{gated ? y * in[1] : y};
          }};
}

std::vector<Case> AdapterCases() {
  return {
      {"lora_down",
       OpOf(OpCode::kLoraDown),
       {Random({N(), 33})},
       {Random({3, 33})},
       [](const Tensors& in, const Tensors& w) { return Tensors{torch::matmul(in[0], w[0].t())}; }},
      {"lora_down of two modules",
       OpOf(OpCode::kLoraDown),
       {Random({N(), 33})},
       {Random({3, 33}), Random({2, 33})},
       [](const Tensors& in, const Tensors& w) {
         return Tensors{torch::matmul(in[0], torch::cat({w[0], w[1]}).t())};
       }},
      {"lora_linear of the last columns",
       OpOf(OpCode::kLoraLinear, {.scale = 1.5, .za_column = 2}),
       {Random({N(), 33}), Random({N(), 5})},
       {Random({17, 33}), Random({17, 3})},
       [](const Tensors& in, const Tensors& w) {
         return Tensors{torch::matmul(in[0], w[0].t()) +
                        1.5 * torch::matmul(in[1].narrow(1, 2, 3), w[1].t())};
       }},
      {"lora_linear with bias",
       OpOf(OpCode::kLoraLinear, {.scale = 1.5, .bias = true}),
       {Random({N(), 33}), Random({N(), 3})},
       {Random({17, 33}), Random({17, 3}), Random({17})},
       [](const Tensors& in, const Tensors& w) {
         return Tensors{torch::matmul(in[0], w[0].t()) + w[2] +
                        1.5 * torch::matmul(in[1], w[1].t())};
       }},
  };
}

// Vectors (N, heads, width) to z and r.
Tensors Normed(const Tensor& x, const Tensor& factor) {
  const Tensor r = (x.square().mean(2, true) + 1e-5).rsqrt();
  return {(x * r * factor).view({N(), -1}), r.squeeze(2)};
}

std::vector<Case> NormAndLinearCases() {
  return {
      {"normalize",
       OpOf(OpCode::kNormalize, {.epsilon = 1e-5}),
       {Random({N(), 33}) * 3.0},
       {},
       [](const Tensors& in, const Tensors&) {
         const Tensor r = (in[0].square().mean(1, true) + 1e-5).rsqrt();
         return Tensors{in[0] * r, r};
       }},
      {"normalize of 3 heads",
       OpOf(OpCode::kNormalize, {.epsilon = 1e-5}),
       {Random({N(), 33}) * 3.0},
       {},
       [](const Tensors& in, const Tensors&) {
         const Tensor heads = in[0].view({N(), 3, 11});
         const Tensor r = (heads.square().mean(2, true) + 1e-5).rsqrt();
         return Tensors{(heads * r).view({N(), 33}), r.squeeze(2)};
       }},
      {"affine of 3 heads",
       OpOf(OpCode::kAffine),
       {Random({N(), 33})},
       {Random({11})},
       [](const Tensors& in, const Tensors& w) {
         return Tensors{(in[0].view({N(), 3, 11}) * w[0]).view({N(), 33})};
       }},
      {"rms_norm",
       OpOf(OpCode::kRmsNorm, {.epsilon = 1e-5}),
       {Random({N(), 33}) * 3.0},
       {Random({33})},
       [](const Tensors& in, const Tensors& w) {
         return Normed(in[0].view({N(), 1, 33}), w[0]);
       }},
      {"rms_norm of 3 heads, weights less one",
       OpOf(OpCode::kRmsNorm, {.epsilon = 1e-5, .offset = 1.0}),
       {Random({N(), 33}) * 3.0},
       {Random({11})},
       [](const Tensors& in, const Tensors& w) {
         return Normed(in[0].view({N(), 3, 11}), 1.0 + w[0]);
       }},
      {"affine",
       OpOf(OpCode::kAffine),
       {Random({N(), 33})},
       {Random({33})},
       [](const Tensors& in, const Tensors& w) { return Tensors{in[0] * w[0]}; }},
      {"linear",
       OpOf(OpCode::kLinear),
       {Random({N(), 33})},
       {Random({17, 33})},
       [](const Tensors& in, const Tensors& w) { return Tensors{torch::matmul(in[0], w[0].t())}; }},
      {"linear with bias",
       OpOf(OpCode::kLinear, {.bias = true}),
       {Random({N(), 33})},
       {Random({17, 33}), Random({17})},
       [](const Tensors& in, const Tensors& w) {
         return Tensors{torch::matmul(in[0], w[0].t()) + w[1]};
       }},
  };
}

std::vector<Case> RowCases() {
  const TrainedTokens trained(Documents().labels, Documents().weights);
  const Tensor index = torch::tensor(trained.rows, torch::kInt64);
  const Reference selected = [=](const Tensors& in, const Tensors&) {
    return Tensors{in[0].index_select(0, index)};
  };
  const Reference merged = [](const Tensors& in, const Tensors&) {
    return Tensors{in[0].view({1, -1})};
  };
  return {{"select_rows", OpOf(OpCode::kSelectRows), {Random({N(), 33})}, {}, selected},
          {"merge_rows", OpOf(OpCode::kMergeRows), {Random({N(), 33})}, {}, merged}};
}

std::vector<Case> Cases() {
  torch::manual_seed(1);
  std::vector<Case> cases = NormAndLinearCases();
  const std::vector<Case> others = {
      {"rope",
       OpOf(OpCode::kRope, {.heads = 3, .head_width = 8}),
       {Random({N(), 24})},
       {},
       [](const Tensors& in, const Tensors&) { return Tensors{Rotated(in[0])}; }},
      {"rope of a head's first half, by the angles of layers that slide",
       OpOf(OpCode::kRope, {.heads = 3, .head_width = 16, .rotary_width = 8, .local = true}),
       {Random({N(), 48})},
       {},
       [](const Tensors& in, const Tensors&) { return Tensors{Rotated(in[0], 16, true)}; }},
      AttentionCase(4, 4),
      AttentionCase(3, 1),
      AttentionCase(4, 2, /*window=*/6, /*softcap=*/1.5),
      ActivationCase("geglu", program::Activation::kGeluTanh, /*gated=*/true),
      ActivationCase("swiglu", program::Activation::kSilu, /*gated=*/true),
      ActivationCase("gelu", program::Activation::kGeluTanh, /*gated=*/false),
      ActivationCase("silu", program::Activation::kSilu, /*gated=*/false),
  };
  for (Case& c : AdapterCases()) cases.push_back(std::move(c));
  for (Case& c : RowCases()) cases.push_back(std::move(c));
  cases.insert(cases.end(), others.begin(), others.end());
  return cases;
}

Tensors Leaves(const Tensors& from) {
  Tensors leaves;
  for (const Tensor& t : from) leaves.push_back(t.detach().clone().requires_grad_(true));
  return leaves;
}

TEST(OpsTest, ForwardIsTheExpression) {
  for (const Case& c : Cases()) {
    Fp32Run run(c);
    run.Forward();
    const Tensors want = c.reference(c.inputs, c.parameters);
    EXPECT_LE(Error(run.out()[0], want[0]), kTolerance) << c.name;
  }
}

TEST(OpsTest, BackwardIsAutogradInFloat64) {
  for (const Case& c : Cases()) {
    const Tensors inputs = Leaves(c.inputs), parameters = Leaves(c.parameters);
    const Tensor y = c.reference(inputs, parameters)[0];
    const Tensor dy = Random({y.size(0), y.size(1)});
    Tensors leaves = inputs;
    leaves.insert(leaves.end(), parameters.begin(), parameters.end());
    const Tensors want = torch::autograd::grad({y}, leaves, {dy});
    Fp32Run run(c);
    run.Forward();
    const Tensors d_in = run.Backward({dy});
    for (size_t i = 0; i < inputs.size(); ++i)
      EXPECT_LE(Error(d_in[i], want[i]), kTolerance) << c.name << " input " << i;
    for (size_t i = 0; i < parameters.size(); ++i) {
      // LoRA's base weight and bias are frozen: no program asks for their gradients.
      if (c.op.code == OpCode::kLoraLinear && i != 1) continue;
      EXPECT_LE(Error(run.parameter_gradients()[i], want[inputs.size() + i]), kTolerance)
          << c.name << " parameter " << i;
    }
  }
}

TEST(OpsTest, WhatAddsIntoAGradientAdds) {
  for (const Case& c : Cases()) {
    const uint8_t can_add = program::RowOf(c.op.code).can_accumulate;
    Fp32Run run(c);
    run.Forward();
    const Tensor dy = torch::randn_like(run.out()[0]);
    const Tensors fresh = run.Backward({dy}), added = run.Backward({dy}, /*present=*/0.75);
    for (size_t i = 0; i < fresh.size(); ++i) {
      const Tensor want = fresh[i].to(torch::kFloat64) + ((can_add >> i & 1) != 0 ? 0.75 : 0.0);
      EXPECT_LE(Error(added[i], want), kTolerance) << c.name << " input " << i;
    }
  }
}

// Parameter gradients are added into: a second backward doubles them.
TEST(OpsTest, ParameterGradientsAdd) {
  for (const Case& c : Cases()) {
    Fp32Run run(c);
    run.Forward();
    const Tensor dy = torch::randn_like(run.out()[0]);
    run.Backward({dy});
    Tensors once;
    for (const Tensor& g : run.parameter_gradients()) once.push_back(g.clone());
    run.Backward({dy});
    for (size_t i = 0; i < once.size(); ++i) {
      if (once[i].norm().item<double>() == 0.0) continue;
      EXPECT_LE(Error(run.parameter_gradients()[i], once[i].to(torch::kFloat64) * 2.0), kTolerance)
          << c.name;
    }
  }
}

TEST(OpsTest, ForwardInPlaceGivesTheSameBits) {
  for (const Case& c : Cases()) {
    const uint8_t allowed = program::RowOf(c.op.code).forward_in_place;
    Fp32Run apart(c);
    apart.Forward();
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      if ((allowed >> i & 1) == 0) continue;
      Fp32Run over(c);
      OpRun run = over.Run();
      run.out[0] = run.in[i];
      over.Functions().forward(run);
      EXPECT_TRUE(torch::equal(over.in()[i].flatten(), apart.out()[0].flatten()))
          << c.name << " over input " << i;
    }
  }
}

TEST(OpsTest, BackwardInPlaceGivesTheSameBits) {
  for (const Case& c : Cases()) {
    const program::OpRow& row = program::RowOf(c.op.code);
    Fp32Run apart(c);
    apart.Forward();
    const Tensor dy = torch::randn_like(apart.out()[0]);
    const Tensors want = apart.Backward({dy});
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      for (int over = 0; over < 16; ++over) {
        if ((row.backward_in_place[i] >> over & 1) == 0) continue;
        Fp32Run inside(c);
        inside.Forward();
        OpRun run = inside.Run();
        Tensor d_out = dy.clone();
        Tensors d_in;
        for (size_t k = 0; k < c.inputs.size(); ++k) d_in.push_back(Poisoned(want[k]));
        run.d_out[0] = ViewOf(d_out);
        for (size_t k = 0; k < c.inputs.size(); ++k) run.d_in[k] = ViewOf(d_in[k]);
        Tensor& taken = over < 8 ? d_out : inside.in()[static_cast<size_t>(over - 8)];
        run.d_in[i] = ViewOf(taken);
        inside.Functions().backward(run);
        EXPECT_TRUE(torch::equal(taken.flatten(), want[i].flatten()))
            << c.name << " input " << i << " over " << over;
      }
    }
  }
}

// za = dropout(z) A^T is linear in z and in A, with the same mask forward and backward: both
// adjoints agree, and the share kept is 1 - p.
TEST(OpsTest, LoraDropoutUsesOneMaskForwardAndBackward) {
  torch::manual_seed(2);
  const Case c{
      "lora_down",
      OpOf(OpCode::kLoraDown, {.dropout = 0.3}),
      {torch::ones({N(), 64}, torch::kFloat64)},
      {Random({5, 64})},
      [](const Tensors& in, const Tensors& w) { return Tensors{torch::matmul(in[0], w[0].t())}; }};
  Fp32Run run(c);
  run.Forward();
  const Tensor dza = Random({N(), 5});
  const Tensor dz = run.Backward({dza})[0].to(torch::kFloat64);
  const double forward = (run.out()[0].to(torch::kFloat64) * dza).sum().item<double>();
  EXPECT_NEAR((dz * c.inputs[0]).sum().item<double>(), forward, 1e-4 * std::abs(forward));
  const Tensor dA = run.parameter_gradients()[0].to(torch::kFloat64);
  EXPECT_NEAR((dA * c.parameters[0]).sum().item<double>(), forward, 1e-4 * std::abs(forward));
  const double kept = (dz != 0.0).to(torch::kFloat64).mean().item<double>();
  EXPECT_NEAR(kept, 0.7, 5.0 * std::sqrt(0.21 / static_cast<double>(dz.numel())));
}

TEST(OpsTest, EmbeddingGathersAndItsBackwardAddsPerToken) {
  torch::manual_seed(3);
  const Case c{"embedding",
               OpOf(OpCode::kEmbedding, {.scale = 1.75}),
               {},
               {Random({5, 12})},
               [](const Tensors&, const Tensors& w) {
                 return Tensors{1.75 * w[0].index_select(0, torch::tensor(Documents().ids))};
               }};
  const Tensors leaves = Leaves(c.parameters);
  const Tensor y = c.reference({}, leaves)[0];
  const Tensor dy = Random({N(), 12});
  const Tensors want = torch::autograd::grad({y}, leaves, {dy});
  Fp32Run run(c);
  run.Forward();
  EXPECT_LE(Error(run.out()[0], y.detach()), kTolerance);
  run.Backward({dy});
  EXPECT_LE(Error(run.parameter_gradients()[0], want[0]), kTolerance);
}

// The columns of A that belong to the batch's tokens, through B, beside the frozen table's rows.
TEST(OpsTest, AnAdapterOfTheEmbeddingAddsAndItsBackwardAddsPerToken) {
  torch::manual_seed(6);
  const Case c{"lora_embedding",
               OpOf(OpCode::kLoraEmbedding, {.scale = 1.5, .table_scale = 2.0, .rank = 3}),
               {Random({N(), 12})},
               {Random({3, 5}), Random({12, 3})},
               [](const Tensors& in, const Tensors& w) {
                 const Tensor ids = torch::tensor(Documents().ids);
                 const Tensor za = w[0].t().index_select(0, ids);
                 return Tensors{in[0] + 3.0 * torch::matmul(za, w[1].t())};
               }};
  const Tensors leaves = Leaves(c.parameters);
  const Tensor y = c.reference(c.inputs, leaves)[0];
  const Tensor dy = Random({N(), 12});
  const Tensors want = torch::autograd::grad({y}, leaves, {dy});
  Fp32Run run(c);
  run.Forward();
  EXPECT_LE(Error(run.out()[0], y.detach()), kTolerance);
  run.Backward({dy});
  run.Backward({dy});
  for (size_t i = 0; i < 2; ++i)
    EXPECT_LE(Error(run.parameter_gradients()[i], 2.0 * want[i]), kTolerance) << i;
  OpRun over = run.Run();
  over.out[0] = over.in[0];
  run.Functions().forward(over);
  EXPECT_TRUE(torch::equal(run.in()[0], run.out()[0]));
}

// Weighted cross-entropy of the trained rows, scaled; rows of weight 0 get an exact zero, also
// where dz is written over z.
void ExpectHeadLoss(double softcap) {
  torch::manual_seed(4);
  const Case c{"head_loss",
               OpOf(OpCode::kHeadLoss, {.softcap = softcap}),
               {Random({N(), 12})},
               {Random({11, 12})},
               [](const Tensors&, const Tensors&) { return Tensors{}; }};
  const Tensors z = Leaves(c.inputs), w = Leaves(c.parameters);
  const Tensor scores = torch::matmul(z[0], w[0].t());
  const Tensor logits = softcap > 0.0 ? softcap * torch::tanh(scores / softcap) : scores;
  const Tensor labels = torch::tensor(Documents().labels).to(torch::kInt64);
  const Tensor losses = at::cross_entropy_loss(
      logits, labels, /*weight=*/{}, at::Reduction::None);
  const Tensor loss = 0.125 * (losses * torch::tensor(Documents().weights)).sum();
  const Tensors want = torch::autograd::grad({loss}, {z[0], w[0]});

  Fp32Run forward(c);
  forward.Functions().forward(forward.Run());
  EXPECT_NEAR(forward.loss(), loss.item<double>(), 1e-6 * loss.item<double>());

  Fp32Run backward(c);
  OpRun run = backward.Run();
  run.d_in[0] = run.in[0];
  backward.Functions().backward(run);
  EXPECT_EQ(backward.loss(), forward.loss());
  EXPECT_LE(Error(backward.in()[0], want[0]), kTolerance);
  EXPECT_LE(Error(backward.parameter_gradients()[0], want[1]), kTolerance);
  EXPECT_EQ(backward.in()[0][2].abs().sum().item<double>(), 0.0);  // Row 2 has weight 0.
}

TEST(OpsTest, HeadLossIsWeightedCrossEntropy) { ExpectHeadLoss(/*softcap=*/0.0); }

TEST(OpsTest, HeadLossCapsItsLogits) { ExpectHeadLoss(/*softcap=*/2.5); }

// The head's adapter: its gradients instead of the matrix's, dza over za.
TEST(OpsTest, HeadLossWithAnAdapter) {
  torch::manual_seed(7);
  const Case c{"head_loss",
               OpOf(OpCode::kHeadLoss, {.scale = 1.5, .rank = 3, .softcap = 2.5}),
               {Random({N(), 12}), Random({N(), 3})},
               {Random({11, 12}), Random({11, 3})},
               [](const Tensors&, const Tensors&) { return Tensors{}; }};
  const Tensors in = Leaves(c.inputs), w = Leaves(c.parameters);
  const Tensor scores = torch::matmul(in[0], w[0].t()) + 1.5 * torch::matmul(in[1], w[1].t());
  const Tensor labels = torch::tensor(Documents().labels).to(torch::kInt64);
  const Tensor losses = at::cross_entropy_loss(
      2.5 * torch::tanh(scores / 2.5), labels, /*weight=*/{}, at::Reduction::None);
  const Tensor loss = 0.125 * (losses * torch::tensor(Documents().weights)).sum();
  const Tensors want = torch::autograd::grad({loss}, {in[0], in[1], w[1]});

  Fp32Run forward(c);
  forward.Functions().forward(forward.Run());
  EXPECT_NEAR(forward.loss(), loss.item<double>(), 1e-6 * loss.item<double>());

  Fp32Run backward(c);
  OpRun run = backward.Run();
  run.parameters[0].gradient = {};
  for (size_t i = 0; i < 2; ++i) run.d_in[i] = run.in[i];
  backward.Functions().backward(run);
  EXPECT_EQ(backward.loss(), forward.loss());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LE(Error(backward.in()[i], want[i]), kTolerance) << i;
    EXPECT_EQ(backward.in()[i][2].abs().sum().item<double>(), 0.0);  // Row 2 has weight 0.
  }
  EXPECT_LE(Error(backward.parameter_gradients()[1], want[2]), kTolerance);

  std::vector<float> next(11);
  Batch answering = Documents().batch;
  answering.next_logits = next.data();
  run = forward.Run();
  run.batch = &answering;
  forward.Functions().forward(run);
  const Tensor last = scores[N() - 1];  // Whoever asks caps them.
  EXPECT_LE(Error(torch::tensor(next), last.detach()), kTolerance);
}

TEST(OpsTest, AddAdds) {
  torch::manual_seed(5);
  const Case c{"add",
               OpOf(OpCode::kAdd),
               {Random({N(), 12}), Random({N(), 12})},
               {},
               [](const Tensors& in, const Tensors&) { return Tensors{in[0] + in[1]}; }};
  Fp32Run run(c);
  run.Forward();
  EXPECT_LE(Error(run.out()[0], c.inputs[0] + c.inputs[1]), kTolerance);
}

}  // namespace
}  // namespace snug::execute

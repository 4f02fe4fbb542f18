// Forms of models that no accepted family has yet, lowered from the public builders: whatever is
// kept or run again, within a block or over several, gradients are bitwise those of keep and agree
// with finite differences.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/lower.h"
#include "worker/program/program_builder.h"

namespace snug::program {
namespace {

constexpr int kPlans = 1000;

ModelConfig Tiny() {
  ModelConfig config = LlamaShape({3, 8, 4, 2, 12, 11});
  config.head_width = 4;
  return config;
}

// Grows a program of full training, or with adapters of every linear.
class Forms {
 public:
  explicit Forms(bool lora, ModelConfig config = Tiny())
      : config_(std::move(config)),
        lora_(lora),
        mode_(lora ? LoraMode() : FullMode()),
        program_(config_, mode_, {}) {}

  BlockBuilder Block(const std::string& name, std::vector<std::string> adapted = {}) {
    Adapters adapters;
    for (const std::string& path : adapted) {
      if (lora_) adapters[path] = {.rank = 2, .scale = 0.5};
    }
    return {name, config_, mode_, adapters};
  }
  std::vector<int> Add(BlockBuilder& block, int layer, std::vector<int> inputs) {
    return program_.AddBlock(program_.AddType(block), layer, std::move(inputs));
  }
  std::vector<int> Embedding() {
    BlockBuilder block = Block("embedding");
    block.Output(block.Embedding());
    return Add(block, -1, {});
  }
  Program Head(std::vector<int> x, Rows rows = Rows::kTokens) {
    BlockBuilder block = Block("head");
    block.HeadLoss(block.RmsNorm(block.Input(config_.width, rows), "norm", "model.norm.weight"));
    Add(block, -1, std::move(x));
    return program_.Take();
  }
  const ModelConfig& config() const { return config_; }

 private:
  const ModelConfig config_;
  const bool lora_;
  const TrainingMode mode_;
  ProgramBuilder program_;
};

const std::vector<std::string> kAdapted = {"self_attn.q_proj", "mlp.up_proj", "mlp.down_proj"};

int SelfAttention(BlockBuilder& b, int h, const ModelConfig& m) {
  const int64_t kv = m.kv_heads * m.head_width;
  const auto qkv = b.Linears(h, {{"self_attn.q_proj", {{"q_proj", m.heads * m.head_width}}},
                                 {"self_attn.k_proj", {{"k_proj", kv}}},
                                 {"self_attn.v_proj", {{"v", kv}}}});
  const int o = b.Attention(b.Rope(qkv[0], m.heads, false, "q"),
                            b.Rope(qkv[1], m.kv_heads, false, "k"), qkv[2], 0);
  return b.Linear(o, {"self_attn.o_proj", {{"o_proj", m.width}}});
}

int Mlp(BlockBuilder& b, int h, const ModelConfig& m) {
  const auto gate_up = b.Linears(
      h, {{"mlp.gate_proj", {{"gate", m.mlp_width}}}, {"mlp.up_proj", {{"up", m.mlp_width}}}});
  return b.Linear(b.Glu(gate_up[0], gate_up[1]), {"mlp.down_proj", {{"down", m.width}}});
}

// x = norm(x + f(x)): BERT.
void PostNorm(BlockBuilder& b, const ModelConfig& m) {
  int x = b.Input(m.width);
  x = b.RmsNorm(b.Add(x, SelfAttention(b, x, m), "sum1"), "norm1", "norm1.weight");
  b.Output(b.RmsNorm(b.Add(x, Mlp(b, x, m), "sum2"), "norm2", "norm2.weight"));
}

// y = x + attention(norm1(x)) + mlp(norm2(x)): GPT-NeoX, Falcon.
void Parallel(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width);
  const int a = SelfAttention(b, b.RmsNorm(x, "norm1", "norm1.weight"), m);
  const int f = Mlp(b, b.RmsNorm(x, "norm2", "norm2.weight"), m);
  b.Output(b.Add(b.Add(x, a, "residual"), f, "output"));
}

// ... as the sum of both halves, added to x last.
void ParallelSummedFirst(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width);
  const int a = SelfAttention(b, b.RmsNorm(x, "norm1", "norm1.weight"), m);
  const int f = Mlp(b, b.RmsNorm(x, "norm2", "norm2.weight"), m);
  b.Output(b.Add(x, b.Add(a, f, "halves"), "output"));
}

// y = x + attention(h) + mlp(h), h = norm(x): GPT-J.
void SharedNorm(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width);
  const int h = b.RmsNorm(x, "norm1", "norm1.weight");
  b.Output(b.Add(b.Add(x, SelfAttention(b, h, m), "residual"), Mlp(b, h, m), "output"));
}

// x = x + down(activation(up(norm(x)))): the MLP of GPT-2, BERT and vision transformers.
void Ungated(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width);
  const int h = b.RmsNorm(x, "norm1", "norm1.weight");
  const int up = b.Linear(h, {"mlp.up_proj", {{"up", m.mlp_width}}});
  const int y = b.Activated(up, m.activation, "act");
  const int f = b.Linear(y, {"mlp.down_proj", {{"down", m.width}}});
  b.Output(b.Add(x, f, "output"));
}

// One value read by everything at once, and one op's operand twice.
void Tangle(BlockBuilder& b, const ModelConfig& m) {
  const int x = b.Input(m.width);
  const int doubled = b.Add(x, x, "doubled");
  const int f = b.Glu(doubled, doubled);
  b.Output(b.Add(b.Add(f, x, "sum"), b.Add(doubled, f, "other"), "output"));
}

using Form = void (*)(BlockBuilder&, const ModelConfig&);

Program Stacked(Form form, bool lora) {
  Forms forms(lora);
  std::vector<int> x = forms.Embedding();
  for (int layer = 0; layer < 3; ++layer) {
    BlockBuilder block = forms.Block("block", kAdapted);
    form(block, forms.config());
    x = forms.Add(block, layer, x);
  }
  return forms.Head(x);
}

void ExpectLowers(const Program& program, int seed) {
  std::mt19937 random(seed);
  ExpectAnyPlanGivesTheGradientsOfKeep(program, kPlans, random);
  ExpectFiniteDifferences(program, random);
}

TEST(BordersTest, PostNorm) { ExpectLowers(Stacked(PostNorm, false), 1); }
TEST(BordersTest, PostNormWithAdapters) { ExpectLowers(Stacked(PostNorm, true), 2); }
TEST(BordersTest, Parallel) { ExpectLowers(Stacked(Parallel, false), 3); }
TEST(BordersTest, ParallelWithAdapters) { ExpectLowers(Stacked(Parallel, true), 4); }
TEST(BordersTest, ParallelSummedFirst) { ExpectLowers(Stacked(ParallelSummedFirst, false), 5); }
TEST(BordersTest, SharedNorm) { ExpectLowers(Stacked(SharedNorm, false), 6); }
TEST(BordersTest, Ungated) { ExpectLowers(Stacked(Ungated, false), 13); }
TEST(BordersTest, UngatedWithAdapters) { ExpectLowers(Stacked(Ungated, true), 14); }
TEST(BordersTest, Tangle) { ExpectLowers(Stacked(Tangle, false), 7); }

// Codes of two bits are what backward has of the value, where they are held.
TEST(BordersTest, TwoBitsGiveTheirOwnSlope) {
  for (const Form form : {Ungated, PostNorm}) {
    std::mt19937 random(15);
    const Program program = Stacked(form, /*lora=*/false);
    const std::string site = form == Ungated ? "up" : "gate";
    ExpectOnlyTwoBitsChangeTheGradients(
        program, *PinnedPlan(program, {{"*", Stash::kTwoBit}}),
        *PinnedPlan(program, {{"layers.*." + site, Stash::kRecompute}}), random);
  }
}

// Where nothing reads the activation itself, of its input a quarter of a byte an element is left.
TEST(BordersTest, Lmbp8CodesTakeTheInputsPlace) {
  Forms forms(/*lora=*/true);
  std::vector<int> x = forms.Embedding();
  for (int layer = 0; layer < 3; ++layer) {
    BlockBuilder block = forms.Block("block", {"mlp.up_proj"});
    Ungated(block, forms.config());
    x = forms.Add(block, layer, x);
  }
  const Program program = forms.Head(x);
  const LowerOptions options = {.key = {.tokens = 64, .documents = 1, .longest_document = 64}};
  const auto stashed = [&](const Plan& plan) {
    int64_t bytes = 0;
    const Tape tape = *Lower(program, plan, options);
    for (const Slot& slot : tape.slots) bytes += slot.region == Region::kStash ? slot.bytes : 0;
    return bytes;
  };
  const Plan codes = *PinnedPlan(program, {{"layers.*.up", Stash::kTwoBit}});
  const int64_t width = forms.config().mlp_width;
  EXPECT_EQ(stashed(RecomputePlan(program, 0)) - stashed(codes), 3 * 64 * (width * 4 - width / 4));
}

// Every decoder block reads the encoder's output beside its own input, and adds into its gradient.
Program EncoderDecoder(bool lora) {
  ModelConfig config = Tiny();
  config.layers = 4;
  Forms forms(lora, config);
  const std::vector<int> embedded = forms.Embedding();
  std::vector<int> encoded = embedded, x = embedded;
  for (int layer = 0; layer < 2; ++layer) {
    BlockBuilder block = forms.Block("encoder", kAdapted);
    Parallel(block, config);
    encoded = forms.Add(block, layer, encoded);
  }
  for (int layer = 2; layer < 4; ++layer) {
    BlockBuilder b = forms.Block("decoder", kAdapted);
    const int64_t kv = config.kv_heads * config.head_width;
    int y = b.Input(config.width);
    const int e = b.Input(config.width, Rows::kTokens, "encoded");
    y = b.Add(y, SelfAttention(b, b.RmsNorm(y, "norm1", "norm1.weight"), config), "residual1");
    const int q = b.Linear(b.RmsNorm(y, "norm2", "norm2.weight"),
                           {"cross.q_proj", {{"cross.q", config.heads * config.head_width}}});
    const auto keys =
        b.Linears(e, {{"cross.k_proj", {{"cross.k", kv}}}, {"cross.v_proj", {{"cross.v", kv}}}});
    const int o = b.Attention(q, keys[0], keys[1], 0);
    y = b.Add(y, b.Linear(o, {"cross.o_proj", {{"cross.o", config.width}}}), "residual2");
    b.Output(b.Add(y, Mlp(b, b.RmsNorm(y, "norm3", "norm3.weight"), config), "output"));
    x = forms.Add(b, layer, {x[0], encoded[0]});
  }
  return forms.Head(x);
}

TEST(BordersTest, EncoderDecoder) { ExpectLowers(EncoderDecoder(false), 8); }
TEST(BordersTest, EncoderDecoderWithAdapters) { ExpectLowers(EncoderDecoder(true), 9); }

// Two stages; between them pairs of rows become one. The second stage's rows are half as many.
Program Stages() {
  Forms forms(/*lora=*/false);
  std::vector<int> x = forms.Embedding();
  const ModelConfig& m = forms.config();
  BlockBuilder first = forms.Block("stage1");
  Parallel(first, m);
  x = forms.Add(first, 0, x);
  BlockBuilder merge = forms.Block("merge");
  const int pairs = merge.MergeRows(merge.Input(m.width), 2, Rows::kMerged1, "merged");
  merge.Output(merge.Linear(merge.RmsNorm(pairs, "norm", "merge.norm.weight"),
                            {"merge.reduction", {{"reduced", m.width}}}));
  x = forms.Add(merge, 1, x);
  BlockBuilder second = forms.Block("stage2");
  const int y = second.Input(m.width, Rows::kMerged1);
  const int h = second.RmsNorm(y, "norm1", "norm1.weight");
  const int a = second.Add(y, SelfAttention(second, h, m), "residual");
  second.Output(
      second.Add(a, Mlp(second, second.RmsNorm(a, "norm2", "norm2.weight"), m), "output"));
  x = forms.Add(second, 2, x);
  return forms.Head(x, Rows::kMerged1);
}

TEST(BordersTest, StagesWhoseRowsChange) { ExpectLowers(Stages(), 10); }

// Spatial reduction (PVT: Wang et al. 2021, equation 2): queries of every row attend to keys and
// values of pairs of rows, reduced to one each.
Program SpatialReduction(bool lora) {
  Forms forms(lora);
  std::vector<int> x = forms.Embedding();
  const ModelConfig& m = forms.config();
  const int64_t kv = m.kv_heads * m.head_width;
  for (int layer = 0; layer < 3; ++layer) {
    BlockBuilder b = forms.Block("block", kAdapted);
    int y = b.Input(m.width);
    const int h = b.RmsNorm(y, "norm1", "norm1.weight");
    const int q = b.Linear(h, {"self_attn.q_proj", {{"q_proj", m.heads * m.head_width}}});
    const int pairs = b.MergeRows(h, 2, Rows::kMerged1, "pairs");
    const int reduced =
        b.RmsNorm(b.Linear(pairs, {"sr", {{"sr", m.width}}}), "norm", "norm.weight");
    const auto keys = b.Linears(
        reduced, {{"self_attn.k_proj", {{"k_proj", kv}}}, {"self_attn.v_proj", {{"v", kv}}}});
    const int o = b.Attention(q, keys[0], keys[1], {.causal = false});
    y = b.Add(y, b.Linear(o, {"self_attn.o_proj", {{"o_proj", m.width}}}), "residual");
    b.Output(b.Add(y, Mlp(b, b.RmsNorm(y, "norm2", "norm2.weight"), m), "output"));
    x = forms.Add(b, layer, x);
  }
  return forms.Head(x);
}

TEST(BordersTest, SpatialReduction) { ExpectLowers(SpatialReduction(false), 16); }
TEST(BordersTest, SpatialReductionWithAdapters) { ExpectLowers(SpatialReduction(true), 17); }

// The head sees the trained rows alone.
Program Selected(bool pooler) {
  Forms forms(/*lora=*/false);
  std::vector<int> x = forms.Embedding();
  for (int layer = 0; layer < 3; ++layer) {
    BlockBuilder block = forms.Block("block");
    SharedNorm(block, forms.config());
    x = forms.Add(block, layer, x);
  }
  BlockBuilder select = forms.Block("select");
  const int all = select.Input(forms.config().width);
  const int rows = select.SelectRows(all, Rows::kTrained, "selected");
  if (pooler) select.Linear(rows, {"pooler.dense", {{"pooler", 5}}});
  select.Output(rows);
  return forms.Head(forms.Add(select, -1, x), Rows::kTrained);
}

TEST(BordersTest, SelectedRows) { ExpectLowers(Selected(false), 11); }

// A pooler whose result nobody reads has no backward, and what it would train gets no gradient.
TEST(BordersTest, AnUnreadResultHasNoBackward) {
  const Program program = Selected(true);
  std::mt19937 random(12);
  ExpectAnyPlanGivesTheGradientsOfKeep(program, kPlans, random);
  const LowerOptions options = {.key = {.tokens = 8, .documents = 1, .longest_document = 8}};
  const Tape tape = *Lower(program, RecomputePlan(program, 0), options);
  for (const Instruction& line : tape.instructions) {
    if (line.op == nullptr) continue;
    EXPECT_FALSE(line.op->name == "pooler.dense" && line.direction == Direction::kBackward);
  }
}

// A recompute that spans two blocks keeps the input of the first alone.
TEST(BordersTest, ASegmentKeepsOnlyItsInput) {
  ModelConfig config = LlamaShape({4, 64, 4, 2, 96, 50});
  const Program program = *BuildProgram(config, FullMode());
  const LowerOptions options = {.key = {.tokens = 512, .documents = 1, .longest_document = 512}};
  const Plan pairs = *PinnedPlan(program, {{"*", Stash::kRecompute},
                                           {"layers.1.input", Stash::kRecompute},
                                           {"layers.3.input", Stash::kRecompute}});
  const auto stashed = [&](const Plan& plan) {
    int64_t bytes = 0;
    const Tape tape = *Lower(program, plan, options);
    for (const Slot& slot : tape.slots) bytes += slot.region == Region::kStash ? slot.bytes : 0;
    return bytes;
  };
  EXPECT_EQ(stashed(RecomputePlan(program, 4)) - stashed(pairs), 2 * 512 * 64 * 4);
}

// The op behind the last that has room would draw the random numbers of another block's.
TEST(BordersTest, ABlockHasRoomForFourThousandOps) {
  const LowerOptions options = {.key = {.tokens = 8, .documents = 1, .longest_document = 8}};
  for (const int adds : {300, static_cast<int>(kMostOps), static_cast<int>(kMostOps) + 1}) {
    Forms forms(/*lora=*/false);
    BlockBuilder b = forms.Block("long");
    const int input = b.Input(forms.config().width);
    int x = input;
    for (int i = 0; i < adds; ++i) x = b.Add(x, input, "sum");
    b.Output(x);
    const Program program = forms.Head(forms.Add(b, 0, forms.Embedding()));
    Plan plan = {
        .name = "keep", .recipes = {Recipe(program.type_of(1).values.size())}, .layer_recipe = {0}};
    EXPECT_EQ(Lower(program, plan, options).ok(), adds <= kMostOps) << adds;
  }
}

// Blocks that ask for a border that nobody gives are an error, not a crash.
TEST(BordersTest, ABorderThatNoBlockGivesIsNamed) {
  Program program = Stacked(PostNorm, false);
  program.blocks[2].inputs = {program.blocks[3].outputs[0]};
  const LowerOptions options = {.key = {.tokens = 8, .documents = 1, .longest_document = 8}};
  const auto tape = Lower(program, RecomputePlan(program, 0), options);
  EXPECT_EQ(tape.status().code(), absl::StatusCode::kInternal);
  EXPECT_NE(tape.status().message().find("block 2 reads border"), std::string::npos);
}

// Its loop stands at the end of its block, and nothing reads what comes of a pass.
TEST(BordersTest, WhatTakesTheLossIsTheLastOfItsBlock) {
  const LowerOptions options = {.key = {.tokens = 8, .documents = 1, .longest_document = 8}};
  for (const bool is_last : {false, true}) {
    Program program = Stacked(PostNorm, false);
    const Plan plan = RecomputePlan(program, 0);
    ASSERT_TRUE(Lower(program, plan, options).ok());
    std::vector<Op>& ops = program.types[static_cast<size_t>(program.blocks.back().type)].ops;
    if (is_last) {
      ops.back().outputs = ops.back().inputs;
    } else {
      std::swap(ops.front(), ops.back());
    }
    const auto tape = Lower(program, plan, options);
    EXPECT_EQ(tape.status().code(), absl::StatusCode::kInternal);
    EXPECT_NE(tape.status().message().find("takes the loss"), std::string::npos);
  }
}

}  // namespace
}  // namespace snug::program

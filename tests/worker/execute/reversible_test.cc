// Reversible models as they run: what is recovered is what was there to the bit, by the real ops
// and their random numbers, in the bytes that the tape says; and the gradients are those that
// LibTorch's autograd finds of the same two streams. REV-2 to REV-9: oracles of kernels/README.md.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/execute/counting_source.h"
#include "tests/worker/execute/separate_memory.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/execute/cpu_device.h"
#include "worker/program/planning/form_plans.h"
#include "worker/program/replay.h"

namespace snug::execute {
namespace {

using at::Tensor;
using program::DType;
using program::ModelConfig;
using program::Plan;
using program::Program;
using program::Stash;
using program::Tape;
using program::TrainingMode;
using ::testing::HasSubstr;

ModelConfig Reversible(const program::LlamaSizes& sizes) {
  ModelConfig config = program::LlamaShape(sizes);
  config.reversible = true;
  return config;
}

TrainingMode LoraWithDropout(DType compute = DType::kF32) {
  TrainingMode mode = program::LoraMode({"all-linear"}, compute);
  mode.adapter.rank = 4;
  mode.adapter.alpha = 1.0;  // ToyRun's B is as large as any weight.
  mode.adapter.dropout = 0.25;
  return mode;
}

// Attention drops as well.
ToyRun DroppingRun(const TrainingMode& mode) {
  ModelConfig config = Reversible({4, 48, 6, 2, 128, 97});
  config.attention_dropout = 0.1;
  return {*BuildProgram(config, mode), {33, 65, 31, 2}};
}

Plan RecoverAll(const Program& program) {
  return *program::PinnedPlan(program, {{"*", Stash::kReversible}});
}

// The last works on the rows of a pass alone, whose sums have another order.
std::vector<Plan> SameBitPlans(const Program& program) {
  std::mt19937 random(41);
  std::vector<Plan> plans = {RecoverAll(program),
                             RecomputePlan(program, static_cast<int>(program.config.layers))};
  for (int i = 0; i < 8; ++i) {
    Plan plan = program::RandomPlan(program, 2, random, /*segments=*/true, program::kStashes);
    for (program::Recipe& recipe : plan.recipes) {
      for (program::SiteStash& stash : recipe) {
        const program::StashRow& row = RowOf(stash.kind);
        if (row.in_loop || row.fidelity != program::Fidelity::kExact) stash = Stash::kReversible;
      }
    }
    plans.push_back(std::move(plan));
  }
  return plans;
}

// Full and with adapters that drop, in both number types; and with what lies beside slots guarded.
TEST(ReversibleTest, Rev4Rev6Rev7WhatIsRecoveredGivesBitwiseTheGradientsOfKeep) {
  for (const TrainingMode& mode : {program::FullMode(), program::FullMode(DType::kBF16),
                                   LoraWithDropout(), LoraWithDropout(DType::kBF16)}) {
    ToyRun run = DroppingRun(mode);
    const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
    ASSERT_TRUE(keep.ok()) << keep.status();
    const std::vector<float> gradients = run.Gradients();
    for (const Plan& plan : SameBitPlans(run.program())) {
      const Tape tape = run.Lower(plan);
      EXPECT_EQ(*run.RunInArena(tape, TestDevice()), *keep) << plan.name;
      EXPECT_TRUE(run.Gradients() == gradients) << plan.name;
      CountingSource source, host;
      SeparateMemory memory(source, host);
      Executor executor(run.parameters(), TestDevice());
      EXPECT_EQ(*run.Run(tape, memory, executor), *keep) << plan.name;
      EXPECT_TRUE(run.Gradients() == gradients) << plan.name;
      EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total()) << plan.name;
    }
  }
}

bool RunsAhead(const program::Instruction& line) {
  return line.op != nullptr && line.stream == program::kRecoverStream;
}

// On a thread of its own, one in time and one that is late, beside the backward of the layer behind
// it: the bits that one stream gives, in the bytes that the tape says.
TEST(ReversibleTest, Rev6Rev10RecoveryBesideBackwardGivesBitwiseTheGradientsOfKeep) {
  CpuDevice late(/*threads=*/2, [] {
    thread_local std::mt19937 delays(7);
    if (delays() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 2000));
  });
  for (const TrainingMode& mode : {program::FullMode(), program::FullMode(DType::kBF16),
                                   LoraWithDropout(), LoraWithDropout(DType::kBF16)}) {
    ToyRun run = DroppingRun(mode);
    const auto keep = run.RunInArena(run.Lower(RecomputePlan(run.program(), 0)), TestDevice());
    ASSERT_TRUE(keep.ok()) << keep.status();
    const std::vector<float> gradients = run.Gradients();
    int64_t ahead = 0;
    for (const Plan& vanilla : SameBitPlans(run.program())) {
      const std::optional<Plan> plan = RecoveredAhead(vanilla);
      if (!plan.has_value()) continue;
      const Tape tape = run.Lower(*plan);
      ahead += std::count_if(tape.instructions.begin(), tape.instructions.end(), RunsAhead);
      for (Device* device : {&TestDevice(), static_cast<Device*>(&late)}) {
        EXPECT_EQ(*run.RunInArena(tape, *device, /*micro_batches=*/2), *keep) << plan->name;
        EXPECT_EQ(*run.RunInArena(tape, *device), *keep) << plan->name;
        EXPECT_TRUE(run.Gradients() == gradients) << plan->name;
      }
      CountingSource source, host;
      SeparateMemory memory(source, host);
      Executor executor(run.parameters(), late);
      EXPECT_EQ(*run.Run(tape, memory, executor), *keep) << plan->name;
      EXPECT_TRUE(run.Gradients() == gradients) << plan->name;
      EXPECT_EQ(source.peak(), ReplayTape(tape).peak.total()) << plan->name;
    }
    EXPECT_GT(ahead, 20);
  }
}

TEST(ReversibleTest, WhatGoesWrongBesideBackwardEndsTheRun) {
  ToyRun run = DroppingRun(program::FullMode());
  const Tape tape = run.Lower(*RecoveredAhead(RecoverAll(run.program())));
  OpFunctionTable planted = TestDevice().ops();
  planted[static_cast<size_t>(program::OpCode::kFixedSubtract)].forward = [](const OpRun&) {
    throw CapExceeded("no memory beside");
  };
  auto memory = *ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes);
  Executor executor(run.parameters(), TestDevice());
  executor.UseFunctions(planted);
  const absl::Status status = run.Run(tape, memory, executor).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "no memory beside");
  executor.UseFunctions(TestDevice().ops());
  EXPECT_TRUE(run.Run(tape, memory, executor).ok());
}

// the MLP in passes of a few rows, in the layers' recovery too.
TEST(ReversibleTest, X2LoopsRecoverToo) {
  ToyRun run = DroppingRun(program::FullMode());
  const Program& program = run.program();
  const double keep = *run.RunInArena(run.Lower(RecomputePlan(program, 0)), TestDevice());
  const std::vector<float> expected = run.Gradients();
  const Plan plan = *program::PinnedPlan(program, {{"*", Stash::kReversible},
                                                   {"layers.*.mlp.act", {Stash::kChunk, 17}},
                                                   {"layers.*.mlp.gate", {Stash::kChunk, 17}},
                                                   {"layers.*.mlp.up", {Stash::kChunk, 17}}});
  EXPECT_NEAR(*run.RunInArena(run.Lower(plan), TestDevice()), keep, 1e-5 * keep);
  const std::vector<float> got = run.Gradients();
  double error = 0.0, norm = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(got[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-4);
}

// Dropout that is not drawn as in forward when a layer is recovered.
TEST(ReversibleTest, Rev7AnotherRandomNumberInRecoveryShows) {
  static std::map<std::pair<int, int>, int>& runs = *new std::map<std::pair<int, int>, int>;
  ToyRun run = DroppingRun(LoraWithDropout());
  const Tape tape = run.Lower(RecoverAll(run.program()));
  const double loss = *run.RunInArena(tape, TestDevice());
  const std::vector<float> gradients = run.Gradients();
  OpFunctionTable planted = TestDevice().ops();
  planted[static_cast<size_t>(program::OpCode::kLoraDown)].forward = [](const OpRun& op) {
    OpRun other = op;
    other.scalars.seed += static_cast<uint64_t>(runs[{op.block, op.op_index}]++);
    TestDevice().ops()[static_cast<size_t>(program::OpCode::kLoraDown)].forward(other);
  };
  auto memory = *ArenaMemory::Allocate(TestDevice(), tape.arena_bytes, tape.host_bytes);
  Executor executor(run.parameters(), TestDevice());
  executor.UseFunctions(planted);
  EXPECT_EQ(*run.Run(tape, memory, executor), loss);
  EXPECT_FALSE(run.Gradients() == gradients);
}

TEST(ReversibleTest, AStreamThatLeavesItsRangeIsAnError) {
  ToyRun run = DroppingRun(program::FullMode());
  const Tape tape = run.Lower(RecoverAll(run.program()));
  const View& table = run.parameters()[0].value;
  for (int64_t i = 0; i < table.elements(); ++i) table.as<float>()[i] *= 1e5f;
  const absl::Status status = run.RunInArena(tape, TestDevice()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(status.message(), HasSubstr("left [-1024, 1024)"));
}

// ---- the same model in float64, under autograd --------------------------------------------------

class Reference {
 public:
  explicit Reference(ToyRun& run) : config_(run.program().config), batch_(run.batch()) {
    for (size_t i = 0; i < run.parameters().size(); ++i) {
      const View& value = run.parameters()[i].value;
      const Tensor held = torch::from_blob(value.data, {value.rows, value.width}, torch::kFloat);
      const std::string& key = run.program().parameters[i].key;
      order_.push_back(key);
      weights_[key] = held.to(torch::kDouble).requires_grad_(true);
    }
  }

  double Loss() {
    const auto ids =
        torch::from_blob(const_cast<int32_t*>(batch_.ids), {batch_.tokens}, torch::kInt)
            .to(torch::kLong);
    Tensor x1 = weights_.at("model.embed_tokens.weight").index_select(0, ids), x2 = x1;
    for (int64_t layer = 0; layer < config_.layers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      x1 = x1 + Attention(prefix, Norm(x2, prefix + "input_layernorm.weight"));
      x2 = x2 + Mlp(prefix, Norm(x1, prefix + "post_attention_layernorm.weight"));
    }
    const Tensor z = Norm(x1 + x2, "model.norm.weight");
    Tensor loss = torch::zeros({}, torch::kDouble);
    const Tensor logits = z.matmul(weights_.at("lm_head.weight").t()).log_softmax(-1);
    for (int64_t i = 0; i < batch_.trained; ++i)
      loss = loss - batch_.weights[i] * logits[batch_.trained_rows[i]][batch_.labels[i]];
    loss = loss / 16.0;  // ToyRun's scale.
    loss.backward();
    return loss.item<double>();
  }

  // As ToyRun gives them.
  std::vector<double> Gradients() const {
    std::vector<double> all;
    for (const std::string& key : order_) {
      const Tensor gradient = weights_.at(key).grad().contiguous();
      const double* begin = gradient.data_ptr<double>();
      all.insert(all.end(), begin, begin + gradient.numel());
    }
    return all;
  }

 private:
  Tensor Norm(const Tensor& x, const std::string& key) const {
    const Tensor r = torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + config_.norm_epsilon);
    return x * r * weights_.at(key);
  }
  Tensor Linear(const Tensor& x, const std::string& key) const {
    return x.matmul(weights_.at(key + ".weight").t());
  }
  Tensor Mlp(const std::string& prefix, const Tensor& h) const {
    return Linear(
        torch::silu(Linear(h, prefix + "mlp.gate_proj")) * Linear(h, prefix + "mlp.up_proj"),
        prefix + "mlp.down_proj");
  }
  Tensor Rotated(const Tensor& x) const {
    const int64_t half = config_.head_width / 2;
    const auto table = [&](const float* angles) {
      return torch::from_blob(const_cast<float*>(angles), {batch_.tokens, 1, half}, torch::kFloat)
          .to(torch::kDouble);
    };
    const Tensor heads = x.view({batch_.tokens, -1, config_.head_width});
    const Tensor first = heads.slice(2, 0, half), second = heads.slice(2, half);
    const Tensor cos = table(batch_.cos), sin = table(batch_.sin);
    return torch::cat({first * cos - second * sin, second * cos + first * sin}, 2);
  }
  Tensor Attention(const std::string& prefix, const Tensor& h) const {
    const int64_t group = config_.heads / config_.kv_heads;
    const Tensor q = Rotated(Linear(h, prefix + "self_attn.q_proj"));
    const Tensor k = Rotated(Linear(h, prefix + "self_attn.k_proj")).repeat_interleave(group, 1);
    const Tensor v = Linear(h, prefix + "self_attn.v_proj")
                         .view({batch_.tokens, -1, config_.head_width})
                         .repeat_interleave(group, 1);
    std::vector<Tensor> outputs;
    for (int64_t d = 0; d < batch_.documents; ++d) {
      const int64_t begin = batch_.offsets[d], end = batch_.offsets[d + 1];
      const auto part = [&](const Tensor& x) { return x.slice(0, begin, end).transpose(0, 1); };
      const Tensor hidden = torch::ones({end - begin, end - begin}, torch::kBool).triu(1);
      const Tensor scores = part(q).matmul(part(k).transpose(1, 2)) * config_.attention_scale();
      outputs.push_back(scores.masked_fill(hidden, -INFINITY)
                            .softmax(-1)
                            .matmul(part(v))
                            .transpose(0, 1)
                            .reshape({end - begin, config_.heads * config_.head_width}));
    }
    return Linear(torch::cat(outputs, 0), prefix + "self_attn.o_proj");
  }

  const ModelConfig& config_;
  const Batch& batch_;
  std::vector<std::string> order_;
  std::map<std::string, Tensor> weights_;
};

TEST(ReversibleTest, Rev2Rev8Rev9GradientsAreThoseOfAutograd) {
  for (const int64_t layers : {1, 2, 3, 12}) {
    ToyRun run(*BuildProgram(Reversible({layers, 32, 4, 2, 72, 61}), program::FullMode()),
               {7, 1, 12});
    const auto loss = run.RunInArena(run.Lower(RecoverAll(run.program())), TestDevice());
    ASSERT_TRUE(loss.ok()) << loss.status();
    Reference reference(run);
    EXPECT_NEAR(*loss, reference.Loss(), 1e-5 * *loss);
    const std::vector<float> got = run.Gradients();
    const std::vector<double> expected = reference.Gradients();
    ASSERT_EQ(got.size(), expected.size());
    double most = 0.0, worst = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
      most = std::max(most, std::abs(expected[i]));
      worst = std::max(worst, std::abs(got[i] - expected[i]));
    }
    // A stream's step is some 5e-6 of what the streams are here: 2^-20 of 0.2.
    EXPECT_LT(worst, 4e-5 * most) << layers;
  }
}

}  // namespace
}  // namespace snug::execute

// Reversible models: whatever is recovered, run again, kept or in loops, gradients are bitwise
// those of keep; what is held does not grow with the layers; and where the ops that run again do
// not give what they gave, it shows. REV-1 to REV-13: the oracles of kernels/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/program/interpreter.h"
#include "tests/worker/program/models.h"
#include "tests/worker/program/plan_checks.h"
#include "worker/program/lower.h"
#include "worker/program/program_builder.h"
#include "worker/program/replay.h"

namespace snug::program {
namespace {

ModelConfig Reversible(const std::string& family, int64_t layers) {
  const LlamaSizes sizes = {layers, 8, 4, 2, 12, 11};
  ModelConfig config = family == "llama" ? LlamaShape(sizes) : FamilyShape(family, sizes);
  config.head_width = 4;  // Not C / H.
  config.reversible = true;
  return config;
}

Plan RecoverAll(const Program& program) {
  return *PinnedPlan(program, {{"*", Stash::kReversible}});
}

TEST(ReversibleTest, Rev1Rev9RandomPlansGiveBitwiseTheGradientsOfKeep) {
  std::mt19937 random(31);
  for (const TrainingMode& mode : {FullMode(), LoraMode(), LoraMode({"layers.1.mlp.down_proj"}),
                                   LoraMode({"q_proj", "v_proj"})}) {
    const Program program = *BuildProgram(Reversible("llama", 4), mode);
    ExpectAnyPlanGivesTheGradientsOfKeep(program, 1000, random);
  }
}

TEST(ReversibleTest, EveryFamily) {
  std::mt19937 random(32);
  for (const std::string& family : FamilyNames()) {
    SCOPED_TRACE(family);
    const Program program = *BuildProgram(Reversible(family, 3), FullMode());
    ExpectAnyPlanGivesTheGradientsOfKeep(program, 100, random);
    ExpectFiniteDifferences(program, random);
  }
}

TEST(ReversibleTest, GradientsAgreeWithFiniteDifferences) {
  std::mt19937 random(33);
  for (const TrainingMode& mode : {FullMode(), LoraMode()})
    ExpectFiniteDifferences(*BuildProgram(Reversible("llama", 3), mode), random);
}

// A depth that is odd, even, one: what is recovered does not go by the number of a layer.
TEST(ReversibleTest, Rev8AnyDepth) {
  std::mt19937 random(34);
  for (const int64_t layers : {1, 2, 3, 4, 5, 7, 12, 24}) {
    SCOPED_TRACE(layers);
    const Program program = *BuildProgram(Reversible("llama", layers), FullMode());
    ExpectTheGradientsOfKeep(program, {RecoverAll(program)}, random);
  }
}

// Three streams, of which each layer adds into the next; dropout in what is added; a layer of one
// stream between two of several.
Program ThreeStreams() {
  ModelConfig config = Reversible("llama", 4);
  const TrainingMode mode = FullMode();
  ProgramBuilder program(config, mode, {});
  const auto add = [&](BlockBuilder& block, int layer, std::vector<int> inputs) {
    return program.AddBlock(program.AddType(block), layer, std::move(inputs));
  };
  BlockBuilder stem("embedding", config, mode);
  const int x = stem.ToFixed(stem.Embedding(), "embedding.fixed");
  for (int stream = 0; stream < 3; ++stream) stem.Output(x);
  std::vector<int> streams = add(stem, -1, {});
  for (int layer = 0; layer < 4; ++layer) {
    BlockBuilder b("layer", config, mode);
    std::vector<int> v;
    for (const char* site : {"input1", "input2", "input3"})
      v.push_back(b.FixedInput(config.width, site));
    for (size_t i = 0; i < 3; ++i) {
      const std::string name = std::to_string(i);
      const int h = b.RmsNorm(b.FromFixed(v[(i + 1) % 3], "half" + name), "norm" + name,
                              "norm" + name + ".weight");
      const int up = b.Linear(h, {"up" + name, {{"up" + name, config.mlp_width}}});
      const int act = b.Activated(up, config.activation, "act" + name);
      const int f = b.Linear(act, {"down" + name, {{"down" + name, config.width}}});
      v[i] = b.FixedAdd(v[i], b.Dropout(f, 0.1, "drop" + name), "output" + name);
    }
    for (const int stream : v) b.Output(stream);
    streams = add(b, layer, streams);
  }
  BlockBuilder head("head", config, mode);
  std::vector<int> floats;
  for (const char* site : {"input1", "input2", "input3"})
    floats.push_back(head.FromFixed(head.FixedInput(config.width, site), std::string(site) + ".x"));
  const int sum = head.Add(head.Add(floats[0], floats[1], "sum1"), floats[2], "sum2");
  head.HeadLoss(head.RmsNorm(sum, "norm", "model.norm.weight"));
  add(head, -1, streams);
  return program.Take();
}

TEST(ReversibleTest, Rev7ThreeStreamsWithDropout) {
  std::mt19937 random(35);
  const Program program = ThreeStreams();
  ExpectAnyPlanGivesTheGradientsOfKeep(program, 1000, random);
  ExpectTheGradientsOfKeep(program, {RecoverAll(program)}, random);
  ExpectFiniteDifferences(program, random);
}

// A mask that is not the one of forward when it is drawn again.
TEST(ReversibleTest, Rev7AnotherRandomNumberInRecoveryShows) {
  std::mt19937 random(36);
  const Program program = ThreeStreams();
  ExpectOtherMasksAgainChangeTheGradients(program, RecoverAll(program), random);
}

int64_t ArenaOf(const Program& program, const Plan& plan) {
  return Lower(program, plan, {.key = {.tokens = 64, .documents = 1, .longest_document = 64}})
      ->arena_bytes;
}

TEST(ReversibleTest, Rev11TheArenaDoesNotGrowWithTheLayers) {
  const auto arenas = [](int64_t layers) {
    ModelConfig config = LlamaShape({layers, 32, 4, 2, 64, 11});
    config.reversible = true;
    const Program program = *BuildProgram(config, FullMode());
    return std::pair(ArenaOf(program, RecoverAll(program)),
                     ArenaOf(program, RecomputePlan(program, static_cast<int>(layers))));
  };
  const auto [few, few_kept] = arenas(12);
  const auto [many, many_kept] = arenas(48);
  EXPECT_EQ(many, few);
  EXPECT_EQ(many_kept - few_kept, 36 * 2 * 64 * 32 * 4);  // Two streams of 4 bytes a layer.
}

// A layer's inputs are made of what it gave, each by one line, and nothing of the layers is held.
TEST(ReversibleTest, EachStreamIsTakenBackOnce) {
  const Program program = *BuildProgram(Reversible("llama", 4), FullMode());
  const Tape tape = *Lower(program, RecoverAll(program),
                           {.key = {.tokens = 8, .documents = 1, .longest_document = 8}});
  const auto inverts = [](const Instruction& line) {
    return line.op != nullptr && line.op->code == OpCode::kFixedSubtract;
  };
  const auto inversions =
      std::count_if(tape.instructions.begin(), tape.instructions.end(), inverts);
  EXPECT_EQ(inversions, 2 * 4 - 1);  // Of the first layer both are one.
}

// A plan for layers that nothing takes back.
TEST(ReversibleTest, OtherModelsRefuseIt) {
  const Program program = *BuildProgram(LlamaShape({2, 8, 4, 2, 12, 11}), FullMode());
  const auto plan = PinnedPlan(program, {{std::string(1, '*'), Stash::kReversible}});
  EXPECT_EQ(plan.status().message(),
            "memory.stash: '*' asks for reversible, and the model has no streams to take back; "
            "give the job reversible: native");
}

}  // namespace
}  // namespace snug::program

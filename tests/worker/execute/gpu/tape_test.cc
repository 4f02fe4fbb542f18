// Whole tapes on a GPU against the same program on the CPU: loss and gradients, and what they take
// of its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>

#include "tests/worker/execute/gpu/test_gpu.h"
#include "tests/worker/execute/gpu/uploaded_run.h"
#include "tests/worker/program/models.h"
#include "worker/program/planning/form_plans.h"

namespace snug::execute {
namespace {

using program::DType;
using program::Plan;
using program::TrainingMode;

struct Result {
  double loss = 0.0;
  std::vector<float> gradients;
};

Result OnCpu(ToyRun& run, const Plan& plan) {
  const auto loss = run.RunInArena(run.Lower(plan), TestDevice());
  EXPECT_TRUE(loss.ok()) << loss.status();
  return {loss.value_or(NAN), run.Gradients()};
}

// Nothing is taken beyond the arena, whose slices serve the ops' own needs.
Result OnGpu(ToyRun& run, const Plan& plan, Ahead ahead = Ahead::kFirstStream) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu(ahead);
  UploadedRun uploaded(run, *gpu);
  const program::Tape tape = uploaded.Lower(plan);
  gpu->allocator().ResetPeak();
  const int64_t before = gpu->allocator().usage().peak_bytes;
  const auto loss = uploaded.RunInArena(tape);
  EXPECT_TRUE(loss.ok()) << loss.status();
  const int64_t taken = gpu->allocator().usage().peak_bytes - before;
  EXPECT_GE(taken, tape.arena_bytes);
  EXPECT_LT(taken, tape.arena_bytes + program::kAlignment);
  return {loss.value_or(NAN), uploaded.Gradients()};
}

// ||a - b|| / ||b||
double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  EXPECT_GT(norm, 0.0);
  return std::sqrt(difference / norm);
}

// Moves every parameter by a unit in its last place, up or down.
void Disturb(ToyRun& run) {
  std::mt19937 random(5);
  for (const ParameterView& parameter : run.parameters()) {
    const View& value = parameter.value;
    const auto size = static_cast<size_t>(program::SizeOf(value.dtype));
    for (int64_t i = 0; i < value.elements(); ++i) {
      char* at = value.as<char>() + static_cast<size_t>(i) * size;
      uint32_t bits = 0;
      std::memcpy(&bits, at, size);
      bits += random() % 2 == 0 ? 1u : -1u;
      std::memcpy(at, &bits, size);
    }
  }
}

// Its scale is 1, so that adapters of random numbers are no worse conditioned than their modules.
TrainingMode Lora(DType compute, double dropout) {
  TrainingMode mode = program::LoraMode({"all-linear"}, compute);
  mode.adapter.rank = 4;
  mode.adapter.alpha = 4.0;
  mode.adapter.dropout = dropout;
  return mode;
}

// Two documents below a tile of attention and one of a single token.
const std::vector<int64_t> kDocuments = {7, 1, 12};

class TapeTest : public testing::Test {
 protected:
  // Rounding differs, and the model enlarges that as it enlarges a change of its parameters: the
  // distance may be kFactor times what comes of a unit in the last place of each. A limit of a
  // third of the gradient and more would be no test.
  static constexpr double kFactor = 3.0, kMost = 0.1;

  static void ExpectAsOnCpu(const TrainingMode& mode, const program::ModelConfig& config) {
    const program::Program program = *BuildProgram(config, mode);
    ToyRun run(program, kDocuments), disturbed(program, kDocuments);
    Disturb(disturbed);
    const Plan keep = RecomputePlan(program, 0);
    const Result cpu = OnCpu(run, keep), moved = OnCpu(disturbed, keep);
    const double limit = kFactor * RelativeDistance(moved.gradients, cpu.gradients);
    ASSERT_LT(limit, kMost * kFactor);
    const Result gpu = OnGpu(run, keep);
    EXPECT_LT(RelativeDistance(gpu.gradients, cpu.gradients), limit);
    EXPECT_NEAR(gpu.loss, cpu.loss, limit * cpu.loss);
    // What is recomputed has the same bits.
    for (int blocks : {1, static_cast<int>(config.layers)}) {
      const Result again = OnGpu(run, RecomputePlan(program, blocks));
      EXPECT_EQ(again.loss, gpu.loss) << blocks;
      EXPECT_EQ(again.gradients, gpu.gradients) << blocks;
    }
  }
  static program::ModelConfig Llama() { return program::LlamaShape({2, 32, 4, 2, 72, 61}); }
};

TEST_F(TapeTest, FullFp32) { ExpectAsOnCpu(program::FullMode(), Llama()); }

TEST_F(TapeTest, FullBf16) { ExpectAsOnCpu(program::FullMode(DType::kBF16), Llama()); }

TEST_F(TapeTest, LoraFp32WithDropout) { ExpectAsOnCpu(Lora(DType::kF32, 0.25), Llama()); }

TEST_F(TapeTest, LoraBf16WithDropout) { ExpectAsOnCpu(Lora(DType::kBF16, 0.25), Llama()); }

TEST_F(TapeTest, LoraOfHeadAndEmbedding) {
  ExpectAsOnCpu(program::LoraMode({"lm_head", "embed_tokens", "v_proj"}), Llama());
}

// cuBLAS has no product of the embedding's fp32 adapter into bf16 rows: the device rounds it.
TEST_F(TapeTest, LoraOfHeadAndEmbeddingBf16) {
  ExpectAsOnCpu(program::LoraMode({"lm_head", "embed_tokens", "v_proj"}, DType::kBF16), Llama());
}

// Biases, norms of heads, fused modules, windows, softcaps.
TEST_F(TapeTest, Families) {
  for (const std::string& family : program::FamilyNames()) {
    SCOPED_TRACE(family);
    const program::ModelConfig config = program::FamilyShape(family, {2, 32, 4, 2, 72, 61});
    ExpectAsOnCpu(program::FullMode(), config);
    ExpectAsOnCpu(Lora(DType::kF32, 0.0), config);
  }
}

// Copies to the host and back have a stream of their own.
TEST_F(TapeTest, OffloadedValuesComeBackWhicheverStreamIsAhead) {
  std::mt19937 random(3);
  for (const TrainingMode& mode : {program::FullMode(), Lora(DType::kBF16, 0.25)}) {
    ToyRun run(*BuildProgram(Llama(), mode), kDocuments);
    const Result keep = OnGpu(run, RecomputePlan(run.program(), 0));
    for (int i = 0; i < 4; ++i) {
      const Plan plan = RandomPlan(run.program(), 2, random, /*segments=*/i % 2 == 0,
                                   /*stashes=*/3);  // keep, recompute, offload
      for (Ahead ahead : {Ahead::kFirstStream, Ahead::kLastStream}) {
        const Result other = OnGpu(run, plan, ahead);
        EXPECT_EQ(other.loss, keep.loss);
        EXPECT_EQ(other.gradients, keep.gradients);
      }
    }
  }
}

// An op that takes more than the table declares is stopped, and named, on a GPU as well.
// Layers that are taken back on a stream of their own: the bits of the order on one stream.
TEST_F(TapeTest, Rev10RecoveryBesideBackwardWhicheverStreamIsAhead) {
  program::ModelConfig config = Llama();
  config.reversible = true;
  for (const TrainingMode& mode : {program::FullMode(), program::FullMode(DType::kBF16)}) {
    ToyRun run(*BuildProgram(config, mode), kDocuments);
    const Plan vanilla = *program::PinnedPlan(run.program(), {{"*", program::Stash::kReversible}});
    const Result expected = OnGpu(run, vanilla);
    for (const Ahead ahead : {Ahead::kFirstStream, Ahead::kLastStream}) {
      const Result got = OnGpu(run, *program::RecoveredAhead(vanilla), ahead);
      EXPECT_EQ(got.loss, expected.loss);
      EXPECT_EQ(got.gradients, expected.gradients);
    }
  }
}

TEST_F(TapeTest, AnOpThatUnderDeclaresItsWorkspaceIsNamed) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  ToyRun run(*BuildProgram(Llama(), program::FullMode()), kDocuments);
  UploadedRun uploaded(run, *gpu);
  program::Tape tape = uploaded.Lower(RecomputePlan(run.program(), 0));
  for (const program::Instruction& line : tape.instructions) {
    if (line.op == nullptr || line.op->code != program::OpCode::kHeadLoss) continue;
    tape.slots[static_cast<size_t>(line.workspace)].bytes = 64;
  }
  const auto loss = uploaded.RunInArena(tape);
  EXPECT_EQ(loss.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(loss.status().message(), testing::HasSubstr("of workspace"));
}

}  // namespace
}  // namespace snug::execute

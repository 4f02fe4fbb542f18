// The formulas of worker/program/workspace.cc against what the ops take: never less, at most 1.1
// times + 64 KiB. Each tape runs with room for whatever its ops ask for. Where oneDNN shares a bf16
// product among many threads some of them may get none of it, so there only the first half holds.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/program/op_table.h"

namespace snug::execute {
namespace {

using program::DType;
using program::ModelConfig;
using program::Tape;
using program::TrainingMode;

constexpr int64_t kRoom = int64_t{1} << 28;  // More than any op here takes.
constexpr double kFactor = 1.1;
constexpr double kAllowance = 65536.0;

struct Shape {
  ModelConfig config;
  std::vector<int64_t> documents;
};

// Slices of kRoom instead of those declared, at the same addresses of a larger arena.
Tape WithRoom(Tape tape) {
  const int64_t offset =
      (tape.arena_bytes + program::kAlignment - 1) / program::kAlignment * program::kAlignment;
  tape.slots.push_back({.offset = offset,
                        .bytes = kRoom,
                        .first = 0,
                        .last = static_cast<int32_t>(tape.instructions.size()) - 1});
  for (program::Instruction& line : tape.instructions) {
    line.workspace = static_cast<int32_t>(tape.slots.size()) - 1;
  }
  tape.arena_bytes = offset + kRoom;
  return tape;
}

std::vector<int64_t> Used(ToyRun& run, const Tape& tape) {
  const Tape roomy = WithRoom(tape);
  auto memory = *ArenaMemory::Allocate(TestDevice(), roomy.arena_bytes);
  Executor executor(run.parameters(), TestDevice());
  const auto loss = run.Run(roomy, memory, executor);
  EXPECT_TRUE(loss.ok()) << loss.status();
  std::vector<int64_t> used;
  for (const auto& use : executor.workspace_use()) used.push_back(use.used_bytes);
  return used;
}

void Check(const TrainingMode& mode, const Shape& shape, bool training) {
  ToyRun run(*BuildProgram(shape.config, mode), shape.documents);
  const Tape tape = *program::Lower(
      run.program(), RecomputePlan(run.program(), 0),
      {.key = run.key(), .machine = {.threads = at::get_num_threads()}, .training = training});
  const std::vector<int64_t> used = Used(run, tape);
  for (size_t t = 0; t < used.size(); ++t) {
    const program::Instruction& line = tape.instructions[t];
    if (line.op == nullptr) continue;
    const program::Op& op = *line.op;
    const int64_t declared = line.workspace == program::kNoSlot
                                 ? 0
                                 : tape.slots[static_cast<size_t>(line.workspace)].bytes;
    const std::string where = absl::StrCat(
        program::RowOf(op.code).name, " ", op.name,
        line.direction == program::Direction::kForward ? " forward" : " backward", " at ",
        run.key().tokens, " tokens, longest document ", run.key().longest_document);
    EXPECT_GE(declared, used[t]) << where;
    if (mode.compute == DType::kBF16 && at::get_num_threads() > 2) continue;
    // A third of the rows is not trained, which the head declares for none the less.
    const double factor = op.code == program::OpCode::kHeadLoss ? 1.5 * kFactor : kFactor;
    EXPECT_LE(static_cast<double>(declared), factor * static_cast<double>(used[t]) + kAllowance)
        << where << ", used " << used[t];
  }
}

ModelConfig Config(int64_t width, int64_t heads, int64_t kv_heads, int64_t head_width) {
  ModelConfig config =
      program::LlamaShape({1, width, heads, kv_heads, 3 * width - 8, 1000 + width});
  config.head_width = head_width;
  return config;
}

// Below and above the blocks of attention; one key head and several, in one slice and in more.
std::vector<Shape> Shapes() {
  return {
      {Config(48, 6, 2, 16), {7, 30, 1}},       {Config(48, 6, 2, 16), {100}},
      {Config(64, 4, 1, 24), {18, 16, 17}},     {Config(64, 4, 1, 24), {16, 18, 17}},
      {Config(64, 4, 1, 24), {17, 17, 18, 15}}, {Config(64, 4, 1, 32), {150, 20}},
      {Config(64, 4, 4, 16), {300, 191, 192}},  {Config(128, 2, 2, 64), {767}},
      {Config(128, 2, 1, 40), {768}},           {Config(256, 8, 2, 64), {1100, 64, 64}},
      {Config(96, 3, 3, 32), {2100}},           {Config(128, 2, 2, 128), {513, 100}},
  };
}

TrainingMode Lora(DType compute, double dropout) {
  TrainingMode mode = program::LoraMode({"all-linear"}, compute);
  mode.adapter.rank = 4;
  mode.adapter.dropout = dropout;
  return mode;
}

class WorkspaceTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    TestDevice();
    at::set_num_threads(GetParam());
  }
  static void CheckAll(const TrainingMode& mode, bool training) {
    for (const Shape& shape : Shapes()) Check(mode, shape, training);
  }
};

TEST_P(WorkspaceTest, FullFp32) { CheckAll(program::FullMode(), true); }

TEST_P(WorkspaceTest, FullBf16) { CheckAll(program::FullMode(DType::kBF16), true); }

TEST_P(WorkspaceTest, LoraFp32) { CheckAll(Lora(DType::kF32, 0.0), true); }

TEST_P(WorkspaceTest, LoraFp32WithDropout) { CheckAll(Lora(DType::kF32, 0.1), true); }

TEST_P(WorkspaceTest, LoraBf16) { CheckAll(Lora(DType::kBF16, 0.0), true); }

TEST_P(WorkspaceTest, LoraBf16WithDropout) { CheckAll(Lora(DType::kBF16, 0.1), true); }

// Linears without an adapter, whose bf16 products run alone.
TEST_P(WorkspaceTest, LoraOfTwoModules) {
  CheckAll(program::LoraMode({"q_proj", "v_proj"}, DType::kBF16), true);
}

// Biases, norms of heads, fused modules, windows, softcaps.
TEST_P(WorkspaceTest, Families) {
  for (const std::string& family : program::FamilyNames()) {
    for (int64_t window : {3, 70}) {
      ModelConfig config = program::FamilyShape(family, {1, 64, 4, 2, 184, 1064});
      if (config.window > 0) config.window = window;
      for (const TrainingMode& mode :
           {program::FullMode(), Lora(DType::kF32, 0.0), Lora(DType::kBF16, 0.1)}) {
        Check(mode, {config, {300, 100, 64}}, /*training=*/true);
      }
    }
  }
}

// Keys of other rows than their queries, and biases by distance on one side and on both.
TEST_P(WorkspaceTest, EncoderDecoder) {
  for (const bool gated : {false, true}) {
    ModelConfig config = program::T5Shape(gated, {2, 64, 4, 4, 184, 1064}, 1);
    config.distances = {.buckets = 32, .farthest = 128};
    for (const TrainingMode& mode :
         {program::FullMode(), program::FullMode(DType::kBF16), Lora(DType::kF32, 0.1)}) {
      Check(mode, {config, {300, 100, 64}}, /*training=*/true);
      Check(mode, {config, {1}}, /*training=*/true);
    }
    Check(program::FullMode(), {config, {300, 100, 64}}, /*training=*/false);
  }
}

TEST_P(WorkspaceTest, LoraOfHeadAndEmbedding) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const TrainingMode mode = program::LoraMode({"lm_head", "embed_tokens"}, compute);
    CheckAll(mode, true);
    CheckAll(mode, false);
  }
}

TEST_P(WorkspaceTest, Evaluation) {
  CheckAll(program::FullMode(), false);
  CheckAll(Lora(DType::kBF16, 0.0), false);
}

INSTANTIATE_TEST_SUITE_P(Threads, WorkspaceTest, testing::Values(1, 2, 7));

}  // namespace
}  // namespace snug::execute

// Every product that the worker can ask a GPU for: each op that multiplies, in each number type and
// mode, on an emulation that refuses what cuBLAS does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/execute/gpu/emulated_runtime.h"
#include "tests/worker/execute/gpu/uploaded_run.h"
#include "tests/worker/program/models.h"
#include "worker/execute/gpu/gpu_device.h"
#include "worker/program/op_table.h"

namespace snug::execute {
namespace {

using program::DType;
using program::OpCode;
using program::TrainingMode;

// "lora_linear backward", while it runs.
std::string& Running() {
  static std::string running;
  return running;
}

std::string NameOf(OpCode code, bool forward) {
  return absl::StrCat(program::RowOf(code).name, forward ? " forward" : " backward");
}

template <size_t kOp, bool kForward>
void RunNamed(const OpRun& run) {
  const OpFunctions& functions = OpFunctionsOfKernels()[kOp];
  Running() = NameOf(static_cast<OpCode>(kOp), kForward);
  kForward ? functions.forward(run) : functions.backward(run);
}

template <size_t... kOps>
OpFunctionTable Named(std::index_sequence<kOps...> /*ops*/) {
  return {OpFunctions{&RunNamed<kOps, true>, &RunNamed<kOps, false>}...};
}

const OpFunctionTable& NamedFunctions() {
  static const OpFunctionTable table = Named(std::make_index_sequence<program::kOpCodes>());
  return table;
}

// Operands and result of a product: "f32 x f32 -> bf16".
std::string TypesOf(const GemmCall& call) {
  const auto name = [](DType dtype) { return dtype == DType::kF32 ? "f32" : "bf16"; };
  return absl::StrCat(name(call.dtype), " x ", name(call.dtype), " -> ", name(call.c_dtype));
}

// What ops ask of the device, by op.
using Asked = std::set<std::pair<std::string, std::string>>;

class AskedGpu final : public GpuDevice {
 public:
  AskedGpu()
      : GpuDevice("gpu:0", /*threads=*/2, std::make_unique<EmulatedRuntime>(int64_t{1} << 30),
                  NamedFunctions()) {}
  void Multiply(const GemmCall& call, int stream) override {
    asked.emplace(Running(), TypesOf(call));
    GpuDevice::Multiply(call, stream);
  }
  Asked asked;
};

enum class Use : uint8_t { kTrain, kEvaluate, kAnswer };

// Runs a step of a tiny model; fails where a product is refused, or an op fails otherwise.
void Walk(const program::ModelConfig& config, const TrainingMode& mode, Use use, Asked& all) {
  ToyRun run(*BuildProgram(config, mode), {7, 1, 12});
  AskedGpu gpu;
  UploadedRun uploaded(run, gpu);
  if (use == Use::kAnswer) uploaded.AskForNextLogits();
  const program::Tape tape = uploaded.Lower(RecomputePlan(run.program(), 0), use == Use::kTrain);
  const auto loss = uploaded.RunInArena(tape);
  EXPECT_TRUE(loss.ok()) << config.model_type << ": " << Running() << ": " << loss.status();
  EXPECT_TRUE(gpu.Synchronize().ok());
  all.merge(gpu.asked);
}

// Modes by number type: all weights, adapters of every linear, with dropout, of tables.
std::vector<TrainingMode> Modes(DType compute) {
  std::vector<TrainingMode> modes = {program::FullMode(compute)};
  for (const double dropout : {0.0, 0.25}) {
    modes.push_back(program::LoraMode({"all-linear"}, compute));
    modes.back().adapter.rank = 4;
    modes.back().adapter.dropout = dropout;
  }
  modes.push_back(program::LoraMode({"lm_head", "embed_tokens", "o_proj"}, compute));
  return modes;
}

Asked WalkAll(DType compute) {
  Asked all;
  const program::LlamaSizes sizes = {1, 32, 4, 2, 72, 61};
  for (const TrainingMode& mode : Modes(compute)) {
    for (Use use : {Use::kTrain, Use::kEvaluate, Use::kAnswer})
      Walk(program::LlamaShape(sizes), mode, use, all);
    for (const std::string& family : program::FamilyNames()) {
      const bool tied = program::FamilyShape(family, sizes).tied_embeddings;
      const bool tables = mode.lora && mode.adapter.target_modules.front() == "lm_head";
      if (!(tied && tables)) Walk(program::FamilyShape(family, sizes), mode, Use::kTrain, all);
    }
  }
  return all;
}

// Ops whose functions multiply. Attention's products are its kernels' own.
std::set<std::string> Multiplying() {
  std::set<std::string> names;
  for (OpCode code : {OpCode::kLinear, OpCode::kLoraDown, OpCode::kLoraLinear,
                      OpCode::kLoraEmbedding, OpCode::kHeadLoss}) {
    for (const bool forward : {true, false}) names.insert(NameOf(code, forward));
  }
  return names;
}

class ProductsTest : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, ProductsTest, testing::Values(DType::kF32, DType::kBF16));

TEST_P(ProductsTest, CublasTakesEveryProductOfEveryOp) {
  const Asked asked = WalkAll(GetParam());
  std::set<std::string> ops;
  for (const auto& [op, types] : asked) ops.insert(op);
  EXPECT_EQ(ops, Multiplying());
  std::set<std::string> types;
  for (const auto& [op, form] : asked) types.insert(form);
  if (GetParam() == DType::kF32) {
    EXPECT_THAT(types, testing::ElementsAre("f32 x f32 -> f32"));
    return;
  }
  // The third is the device's own, for the adapter of an embedding.
  EXPECT_THAT(types, testing::ElementsAre("bf16 x bf16 -> bf16", "bf16 x bf16 -> f32",
                                          "f32 x f32 -> bf16", "f32 x f32 -> f32"));
}

// 1 + 2^-12 is no number of TF32, whose next one above 1 is 1 + 2^-10.
TEST(Tf32Test, OperandsOfFp32AreRoundedWhereAJobSaysSo) {
  constexpr int64_t kSide = 4;
  const std::vector<float> values(kSide * kSide, 1.0f + 0x1p-12f);
  AskedGpu gpu;
  const auto memory = DeviceBuffer::Allocate(gpu, 2 * kSide * kSide * 4);
  ASSERT_TRUE(memory.ok()) << memory.status();
  gpu.Copy(memory->data(), values.data(), kSide * kSide * 4, 0);
  GemmCall call{.a = memory->data(), .b = memory->data()};
  call.c = memory->data() + kSide * kSide * 4;
  call.m = call.n = call.k = call.a_stride = call.b_stride = call.c_stride = kSide;
  for (const bool tf32 : {true, false}) {
    UseTf32(tf32);
    std::vector<float> sums(kSide * kSide);
    gpu.Multiply(call, 0);
    gpu.Copy(sums.data(), call.c, kSide * kSide * 4, 0);
    const double exact = kSide * (1.0 + 0x1p-12) * (1.0 + 0x1p-12);
    EXPECT_EQ(sums.front(), static_cast<float>(tf32 ? kSide : exact));
  }
}

}  // namespace
}  // namespace snug::execute

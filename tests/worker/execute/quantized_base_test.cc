// A step over a quantised base is the step over the same base dequantised: losses and gradients of
// adapters, of every family, in fp32 and bf16, within the workspace that the ops declare.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "tests/worker/execute/toy_run.h"
#include "tests/worker/program/models.h"
#include "worker/execute/device.h"
#include "worker/weights/quantized_weight.h"

namespace snug::execute {
namespace {

using program::DType;
using program::Plan;
using program::Program;
using program::Quantization;
using program::RecomputePlan;
using program::TrainingMode;

const std::vector<int64_t> kDocuments = {9, 1, 17, 6};

// Wide enough that the parts of a fused matrix begin at groups of scales: 64 x 256 elements.
program::ModelConfig ConfigOf(const std::string& family) {
  const program::LlamaSizes sizes = {2, 128, 4, 4, 128, 61};
  return family == "llama" ? program::LlamaShape(sizes) : program::FamilyShape(family, sizes);
}

TrainingMode Mode(const program::ModelConfig& config, Quantization kind, DType compute) {
  const char* queries = config.fused_projections ? "qkv_proj" : "q_proj";
  TrainingMode mode = program::LoraMode({queries, "down_proj"}, compute);
  mode.quantization = kind;
  return mode;
}

std::vector<char> Dequantised(const kernels::FrozenWeight& weight, const View& like) {
  std::vector<char> bytes(static_cast<size_t>(like.bytes()));
  const auto dtype = like.dtype == DType::kF32 ? kernels::DType::kF32 : kernels::DType::kBF16;
  const kernels::Error error = weight.kind == kernels::FrozenKind::kNf4
                                   ? kernels::DequantizeNf4({.from = weight.nf4,
                                                             .w = bytes.data(),
                                                             .N = like.rows,
                                                             .K = like.width,
                                                             .w_stride = like.width,
                                                             .dtype = dtype},
                                                            nullptr)
                                   : kernels::DequantizeInt8Weight({.from = weight.int8,
                                                                    .w = bytes.data(),
                                                                    .N = like.rows,
                                                                    .K = like.width,
                                                                    .w_stride = like.width,
                                                                    .dtype = dtype},
                                                                   nullptr);
  EXPECT_TRUE(error.ok());
  return bytes;
}

// The same model twice: over codes, and over what these stand for.
struct Pair {
  ToyRun coded, plain;
  std::deque<weights::QuantizedWeight> weights;
  int quantised = 0;

  Pair(const program::ModelConfig& config, Quantization kind, DType compute)
      : Pair(*program::BuildProgram(config, Mode(config, kind, compute)),
             *program::BuildProgram(config, Mode(config, Quantization::kNone, compute))) {}

  Pair(const Program& in_codes, const Program& in_floats)
      : coded(in_codes, kDocuments), plain(in_floats, kDocuments) {
    for (size_t i = 0; i < coded.program().parameters.size(); ++i) Quantise(i);
  }

  void Quantise(size_t i) {
    const program::Parameter& parameter = coded.program().parameters[i];
    if (parameter.quantization == Quantization::kNone) return;
    View& value = coded.parameters()[i].value;
    const auto read = [&](int64_t first, const View& piece) {
      std::memcpy(piece.data, value.as<char>() + first * program::SizeOf(value.dtype),
                  static_cast<size_t>(piece.bytes()));
      return absl::OkStatus();
    };
    auto made = weights::QuantizedWeight::Allocate(TestDevice(), parameter);
    ASSERT_TRUE(made.ok()) << made.status();
    ASSERT_TRUE(made->Fill(TestDevice(), parameter, read).ok());
    weights.push_back(*std::move(made));
    const std::vector<char> bytes = Dequantised(weights.back().weight(), value);
    std::memcpy(plain.parameters()[i].value.data, bytes.data(), bytes.size());
    value.data = weights.back().data();
    value.quantized = &weights.back().weight();
    ++quantised;
  }
};

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    norm += std::pow(b[i], 2);
  }
  return std::sqrt(difference / norm);
}

void ExpectSameStep(Pair& pair) {
  const bool f32 = pair.coded.program().compute == DType::kF32;
  for (int recomputed : {0, 2}) {
    const Plan plan = RecomputePlan(pair.coded.program(), recomputed);
    const auto coded = pair.coded.RunInArena(pair.coded.Lower(plan), TestDevice());
    const auto plain = pair.plain.RunInArena(
        pair.plain.Lower(RecomputePlan(pair.plain.program(), recomputed)), TestDevice());
    ASSERT_TRUE(coded.ok()) << coded.status();
    ASSERT_TRUE(plain.ok()) << plain.status();
    EXPECT_NEAR(*coded, *plain, (f32 ? 1e-6 : 1e-2) * std::abs(*plain));
    EXPECT_LT(Distance(pair.coded.Gradients(), pair.plain.Gradients()), f32 ? 1e-5 : 5e-2);
  }
}

void ExpectSameStep(const program::ModelConfig& config, Quantization kind, DType compute) {
  Pair pair(config, kind, compute);
  EXPECT_GE(pair.quantised, 2 * 4);
  ExpectSameStep(pair);
}

TEST(QuantizedBaseTest, AStepIsThatOfTheDequantisedBase) {
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const Quantization kind : {Quantization::kNf4, Quantization::kInt8}) {
      for (const std::string family : {"llama", "biased", "phi3", "gemma2"}) {
        SCOPED_TRACE(family + (compute == DType::kF32 ? " fp32" : " bf16") +
                     (kind == Quantization::kNf4 ? " nf4" : " int8"));
        ExpectSameStep(ConfigOf(family), kind, compute);
      }
    }
  }
}

// Files may have the head in codes as well, which a job may adapt.
TEST(QuantizedBaseTest, AHeadInCodesIsTheDequantisedOne) {
  const program::ModelConfig plain = ConfigOf("llama");
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    for (const Quantization kind : {Quantization::kNf4, Quantization::kInt8}) {
      for (const std::string head : {"", "lm_head"}) {
        SCOPED_TRACE(head + (compute == DType::kF32 ? " fp32" : " bf16") +
                     (kind == Quantization::kNf4 ? " nf4" : " int8"));
        program::ModelConfig codes = plain;
        codes.quantization = kind;
        codes.outer_codes = {"lm_head"};
        TrainingMode mode = program::LoraMode({"q_proj", "down_proj"}, compute);
        if (!head.empty()) mode.adapter.target_modules.push_back(head);
        Pair pair(*program::BuildProgram(codes, mode), *program::BuildProgram(plain, mode));
        EXPECT_EQ(pair.quantised, 2 * 7 + 1);
        ExpectSameStep(pair);
      }
    }
  }
}

// A head of documents has a bias and reads all rows that it is handed.
TEST(QuantizedBaseTest, AFrozenHeadOfDocumentsMayBeInCodes) {
  const program::ModelConfig plain = program::EncoderShape("bert", {2, 128, 4, 4, 128, 61});
  program::ModelConfig codes = plain;
  codes.quantization = Quantization::kNf4;
  codes.outer_codes = {"bert.pooler.dense", "classifier"};
  TrainingMode frozen = program::LoraMode({});
  frozen.dropout = false;
  Pair pair(*program::BuildProgram(codes, frozen), *program::BuildProgram(plain, frozen));
  EXPECT_EQ(pair.quantised, 2 * 6 + 2);
  const auto loss = [](ToyRun& run) {
    const Plan plan = RecomputePlan(run.program(), 0);
    return run.RunInArena(run.Lower(plan, /*training=*/false), TestDevice());
  };
  const auto one = loss(pair.coded), two = loss(pair.plain);
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_NEAR(*one, *two, 1e-6 * std::abs(*two));
}

// Files spell an image encoder's modules otherwise than the class that lists them.
TEST(QuantizedBaseTest, ModulesAreLeftOutByTheirNamesInTheClass) {
  program::ModelConfig config = program::ImageShape("vit", {2, 128, 4, 4, 128, 1});
  config.quantization = Quantization::kInt8;
  config.in_floats = {"vit.layers.1.attention", "fc2"};
  TrainingMode mode = program::LoraMode({"q_proj"});
  mode.adapter.modules_to_save = {"classifier"};
  const auto program = program::BuildProgram(config, mode);
  ASSERT_TRUE(program.ok()) << program.status();
  std::set<std::string> codes;
  for (const program::Parameter& parameter : program->parameters)
    if (parameter.quantization != Quantization::kNone) codes.insert(parameter.key);
  const std::string layers = "vit.encoder.layer.";
  EXPECT_EQ(codes, (std::set<std::string>{layers + "0.attention.attention.key.weight",
                                          layers + "0.attention.attention.query.weight",
                                          layers + "0.attention.attention.value.weight",
                                          layers + "0.attention.output.dense.weight",
                                          layers + "0.intermediate.dense.weight",
                                          layers + "1.intermediate.dense.weight"}));
}

// T5's head reads what config.json may scale, which no product with codes does.
TEST(QuantizedBaseTest, AScaledHeadInCodesIsRefused) {
  program::ModelConfig config = program::T5Shape(/*gated=*/true, {2, 128, 4, 4, 128, 61}, 1);
  config.quantization = Quantization::kInt8;
  config.outer_codes = {"lm_head"};
  EXPECT_TRUE(program::BuildProgram(config, program::LoraMode({"q"})).ok());
  config.head_scale = 0.5;
  const auto refused = program::BuildProgram(config, program::LoraMode({"q"}));
  EXPECT_NE(refused.status().message().find("quantization: lm_head.weight is in int8"),
            std::string::npos)
      << refused.status();
}

// More rows than a part that is added has, on both of its borders.
TEST(QuantizedBaseTest, RowsBeyondAPartAreAdded) {
  for (int64_t tokens : {511, 512, 513, 1025}) {
    const program::ModelConfig config = ConfigOf("biased");
    Pair pair(config, Quantization::kNf4, DType::kF32);
    ToyRun coded(pair.coded.program(), {tokens}), plain(pair.plain.program(), {tokens});
    for (size_t i = 0; i < coded.parameters().size(); ++i) {
      coded.parameters()[i].value = pair.coded.parameters()[i].value;
      plain.parameters()[i].value = pair.plain.parameters()[i].value;
    }
    const auto one = coded.RunInArena(coded.Lower(RecomputePlan(coded.program(), 0)), TestDevice());
    const auto two = plain.RunInArena(plain.Lower(RecomputePlan(plain.program(), 0)), TestDevice());
    ASSERT_TRUE(one.ok()) << one.status();
    ASSERT_TRUE(two.ok()) << two.status();
    EXPECT_NEAR(*one, *two, 1e-6 * std::abs(*two));
    EXPECT_LT(Distance(coded.Gradients(), plain.Gradients()), 1e-5);
  }
}

// One scale serves 16,384 elements, so ops that read rows of one matrix begin at such borders.
TEST(QuantizedBaseTest, AFusedMatrixWhosePartsShareAScaleIsRefusedByName) {
  const program::ModelConfig config = program::FamilyShape("phi3", {2, 64, 4, 4, 96, 61});
  const auto refused = program::BuildProgram(config, Mode(config, Quantization::kNf4, DType::kF32));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("quantization: nf4"), std::string::npos);
  EXPECT_NE(refused.status().message().find("qkv_proj"), std::string::npos);
  EXPECT_TRUE(program::BuildProgram(config, Mode(config, Quantization::kInt8, DType::kF32)).ok());
}

// Head, embedding, norms and what is trained whole stay as they are.
TEST(QuantizedBaseTest, OnlyFrozenLinearModulesOfTheLayersAreQuantised) {
  const program::ModelConfig config = ConfigOf("llama");
  TrainingMode mode = Mode(config, Quantization::kNf4, DType::kF32);
  mode.adapter.modules_to_save = {"o_proj"};
  const Program program = *program::BuildProgram(config, mode);
  for (const program::Parameter& parameter : program.parameters) {
    const bool linear = parameter.key.starts_with("model.layers.") &&
                        parameter.key.ends_with("_proj.weight") && !parameter.trainable;
    EXPECT_EQ(parameter.quantization != Quantization::kNone, linear) << parameter.key;
  }
}

}  // namespace
}  // namespace snug::execute

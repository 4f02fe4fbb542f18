// Matrices that a checkpoint holds in codes: taken as they are, or refused by name.
#include "worker/weights/packed_weight.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/nf4_levels.h"
#include "nlohmann/json.hpp"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"
#include "worker/program/quantization.h"
#include "worker/weights/parameters.h"

namespace snug::weights {
namespace {

using checkpoint::TempFolder;
using nlohmann::json;
using program::DType;
using program::Quantization;
using ::testing::HasSubstr;
using train::ToyModel;
using train::ToyTensor;

constexpr char kMatrix[] = "model.layers.0.mlp.up_proj.weight";
const ToyModel kModel = {.sizes = {1, 64, 4, 2, 160, 61}};

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

ToyTensor Floats(const std::string& key, const std::vector<float>& values) {
  return {key, "F32", {static_cast<int64_t>(values.size())}, Bytes(values)};
}
ToyTensor Codes(const std::string& key, std::string bytes) {
  return {key, "U8", {static_cast<int64_t>(bytes.size()), 1}, std::move(bytes)};
}

// Codes and scales of no weights in particular, so that only they can be what is read.
std::string Drawn(int64_t bytes, int step) {
  std::string drawn(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < drawn.size(); ++i) drawn[i] = static_cast<char>(i * 7 + step);
  return drawn;
}
std::vector<float> DrawnScales(int64_t count) {
  std::vector<float> scales(static_cast<size_t>(count));
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(i % 13 + 1);
  return scales;
}

std::vector<ToyTensor> Nf4Parts(const ToyTensor& matrix, bool nested) {
  const int64_t n = matrix.shape[0] * matrix.shape[1];
  const program::Nf4Sizes sizes = program::Nf4SizesOf(n);
  json state = {{"quant_type", "nf4"}, {"blocksize", 64}, {"shape", matrix.shape}};
  std::vector<float> levels(256);
  for (uint32_t code = 0; code < 256; ++code)
    levels[code] = kernels::DynamicValue(kernels::kDynamicMap, code);
  std::vector<ToyTensor> parts = {
      Codes(matrix.key, Drawn(sizes.code_bytes, 1)),
      Floats(matrix.key + ".quant_map",
             {std::begin(kernels::kNf4Levels.at), std::end(kernels::kNf4Levels.at)})};
  if (nested) {
    state.update({{"nested_blocksize", 256}, {"nested_offset", 0.25}});
    parts.push_back(Codes(matrix.key + ".absmax", Drawn(sizes.blocks, 3)));
    parts.push_back(Floats(matrix.key + ".nested_absmax", DrawnScales(sizes.groups)));
    parts.push_back(Floats(matrix.key + ".nested_quant_map", levels));
  } else {
    parts.push_back(Floats(matrix.key + ".absmax", DrawnScales(sizes.blocks)));
  }
  parts.push_back(Codes(matrix.key + ".quant_state.bitsandbytes__nf4", state.dump()));
  return parts;
}

std::vector<ToyTensor> Int8Parts(const ToyTensor& matrix) {
  const std::string module = matrix.key.substr(0, matrix.key.rfind('.'));
  return {{matrix.key, "I8", matrix.shape, Drawn(matrix.shape[0] * matrix.shape[1], 5)},
          Floats(module + ".SCB", DrawnScales(matrix.shape[0])),
          {module + ".weight_format", "U8", {}, std::string(1, '\0')}};
}

Quantization KindOf(const program::Program& program, const std::string& key) {
  for (const program::Parameter& parameter : program.parameters)
    if (parameter.key == key) return parameter.quantization;
  ADD_FAILURE() << key;
  return Quantization::kNone;
}

class PackedWeightTest : public testing::Test {
 protected:
  using Change = std::function<void(std::vector<ToyTensor>&)>;

  // The model, with its layers' matrices in codes; in the place of the one before.
  void Write(Quantization kind, bool nested = true, const Change& change = {}) {
    std::vector<ToyTensor> packed;
    for (const ToyTensor& tensor : train::TensorsOf(model_)) {
      const bool matrix =
          (absl::StartsWith(tensor.key, "model.layers.") && tensor.shape.size() == 2) ||
          outside_.contains(tensor.key);
      if (!matrix || in_floats_.contains(tensor.key)) {
        packed.push_back(tensor);
        continue;
      }
      for (ToyTensor& part :
           kind == Quantization::kNf4 ? Nf4Parts(tensor, nested) : Int8Parts(tensor))
        packed.push_back(std::move(part));
    }
    if (change) change(packed);
    std::filesystem::remove_all(folder_ / "model");
    train::WriteModel(folder_ / "model", model_, packed);
    const std::string path = folder_ / "model/config.json";
    json config = json::parse(std::ifstream(path));
    config["quantization_config"] = {{"quant_method", "bitsandbytes"},
                                     {"load_in_4bit", kind == Quantization::kNf4},
                                     {"load_in_8bit", kind == Quantization::kInt8},
                                     {"bnb_4bit_quant_type", "nf4"}};
    if (!skipped_.is_null()) config["quantization_config"]["llm_int8_skip_modules"] = skipped_;
    std::ofstream(path) << config;
    tensors_ = std::move(packed);
  }
  absl::StatusOr<program::Program> Program(const program::TrainingMode& mode) const {
    auto config = program::ReadModelConfig(folder_ / "model");
    if (!config.ok()) return config.status();
    return program::BuildProgram(*config, mode);
  }
  absl::Status Load(const program::TrainingMode& mode = program::LoraMode()) {
    auto program = Program(mode);
    if (!program.ok()) return program.status();
    auto loaded =
        Parameters::Load(*program, {.model_dir = folder_ / "model"}, execute::TestDevice());
    if (!loaded.ok()) return loaded.status();
    program_ = *std::move(program);
    parameters_.emplace(*std::move(loaded));
    return absl::OkStatus();
  }
  const kernels::FrozenWeight& Loaded(const std::string& key) const {
    for (size_t i = 0; i < program_.parameters.size(); ++i)
      if (program_.parameters[i].key == key) return *parameters_->views()[i].value.quantized;
    ADD_FAILURE() << key;
    return *parameters_->views()[0].value.quantized;
  }
  ToyTensor& Tensor(std::vector<ToyTensor>& tensors, const std::string& key) {
    return *std::find_if(tensors.begin(), tensors.end(),
                         [&](const ToyTensor& tensor) { return tensor.key == key; });
  }
  void ExpectBytes(const void* loaded, const std::string& key) {
    const std::string& bytes = Tensor(tensors_, key).bytes;
    EXPECT_EQ(std::memcmp(loaded, bytes.data(), bytes.size()), 0) << key;
  }
  std::string Refusal(const Change& change) {
    Write(Quantization::kNf4, true, change);
    return std::string(Load().message());
  }
  // What is predicted, which is what is held.
  int64_t BaseBytes(const json& skipped, const std::set<std::string>& in_floats) {
    skipped_ = skipped;
    in_floats_ = in_floats;
    Write(Quantization::kNf4);
    EXPECT_TRUE(Load().ok());
    const int64_t predicted = program::StaticComponents(program_, {8, 1, 8}, {}, 0).weights;
    EXPECT_EQ(parameters_->held(program_).base, predicted);
    return predicted;
  }

  ToyModel model_ = kModel;
  std::set<std::string> in_floats_;  // Matrices of the layers that are in no codes,
  json skipped_;                     // and what config.json says of them.
  std::set<std::string> outside_;    // Matrices outside the layers that are in codes.
  const TempFolder folder_;
  std::vector<ToyTensor> tensors_;
  program::Program program_;
  std::optional<Parameters> parameters_;
};

TEST_F(PackedWeightTest, CodesAreTakenAsTheyAre) {
  Write(Quantization::kNf4);
  SNUG_ASSERT_OK(Load());
  const kernels::Nf4Weight& nf4 = Loaded(kMatrix).nf4;
  ExpectBytes(nf4.codes, kMatrix);
  ExpectBytes(nf4.absmax_codes, absl::StrCat(kMatrix, ".absmax"));
  ExpectBytes(nf4.absmax, absl::StrCat(kMatrix, ".nested_absmax"));
  EXPECT_EQ(*nf4.offset, 0.25f);
}

TEST_F(PackedWeightTest, OfEightBitsAsWell) {
  Write(Quantization::kInt8);
  SNUG_ASSERT_OK(Load());
  const kernels::Int8Weight& int8 = Loaded(kMatrix).int8;
  ExpectBytes(int8.codes, kMatrix);
  ExpectBytes(int8.absmax, "model.layers.0.mlp.up_proj.SCB");
}

// Each scale within half a step of the dynamic map: the widest are a 64th of the largest distance.
TEST_F(PackedWeightTest, ScalesThatAreNoCodesBecomeSuch) {
  Write(Quantization::kNf4, /*nested=*/false);
  SNUG_ASSERT_OK(Load());
  const kernels::Nf4Weight& nf4 = Loaded(kMatrix).nf4;
  ExpectBytes(nf4.codes, kMatrix);
  const std::vector<float> scales = DrawnScales(program::Nf4SizesOf(160 * 64).blocks);
  for (size_t i = 0; i < scales.size(); ++i) {
    const float back =
        kernels::DynamicValue(kernels::kDynamicMap, nf4.absmax_codes[i]) * nf4.absmax[i / 256] +
        *nf4.offset;
    EXPECT_NEAR(back, scales[i], 0.07f / 64) << i;
  }
}

// The predicted bytes are those that are held; the daemon knows no more than the headers.
TEST_F(PackedWeightTest, TheBytesAreThoseOfABaseThatIsQuantisedHere) {
  Write(Quantization::kNf4);
  SNUG_ASSERT_OK(Load());
  const program::Components bytes = program::StaticComponents(program_, {8, 1, 8}, {}, 0);
  EXPECT_EQ(parameters_->held(program_).base, bytes.weights);
}

// Dynamic quantisation leaves out what differs from layer to layer.
TEST_F(PackedWeightTest, ModulesThatAreLeftOutStayInFloats) {
  model_.sizes.layers = 3;
  skipped_ = {"lm_head", "model.layers.1.mlp", "o_proj"};
  for (const char* module : {"0.self_attn.o_proj", "1.self_attn.o_proj", "2.self_attn.o_proj",
                             "1.mlp.gate_proj", "1.mlp.up_proj", "1.mlp.down_proj"})
    in_floats_.insert(absl::StrCat("model.layers.", module, ".weight"));
  Write(Quantization::kNf4);
  SNUG_ASSERT_OK(Load());
  int codes = 0;
  for (size_t i = 0; i < program_.parameters.size(); ++i) {
    const program::Parameter& parameter = program_.parameters[i];
    const bool packed = parameter.quantization == Quantization::kNf4;
    codes += packed;
    if (in_floats_.contains(parameter.key)) {
      EXPECT_FALSE(packed) << parameter.key;
      ExpectBytes(parameters_->views()[i].value.data, parameter.key);
    }
  }
  EXPECT_EQ(codes, 3 * 7 - 6);
  ExpectBytes(Loaded(kMatrix).nf4.codes, kMatrix);
  // Layers 0 and 2 are of one type, layer 1 is of another.
  EXPECT_EQ(program_.blocks[1].type, program_.blocks[3].type);
  EXPECT_NE(program_.blocks[1].type, program_.blocks[2].type);
  const program::Components bytes = program::StaticComponents(program_, {8, 1, 8}, {}, 0);
  EXPECT_EQ(parameters_->held(program_).base, bytes.weights);
}

// 64 x 160 elements: 40,960 bytes of fp32; 5,120 of codes, 192 of the scales of 160 blocks, and two
// numbers, each from a multiple of 64 on.
TEST_F(PackedWeightTest, AMatrixThatIsLeftOutIsPredictedToTheByte) {
  model_.sizes.layers = 3;
  constexpr int64_t kMore = 40'960 - (5'120 + 192 + 64 + 64);
  const std::string key = "model.layers.1.mlp.down_proj.weight";
  const int64_t all = BaseBytes(json(nullptr), {});
  EXPECT_EQ(BaseBytes(json::array({"lm_head"}), {}), all);
  EXPECT_EQ(BaseBytes(json::array({"lm_head", "model.layers.1.mlp.down_proj"}), {key}),
            all + kMore);
  const std::set<std::string> everywhere = {"model.layers.0.mlp.down_proj.weight", key,
                                            "model.layers.2.mlp.down_proj.weight"};
  EXPECT_EQ(BaseBytes(json::array({"lm_head", "down_proj"}), everywhere), all + 3 * kMore);
}

// Names that end in a dot begin with it, as for transformers; parts of a component name nothing.
TEST_F(PackedWeightTest, ANameStandsForWholeComponents) {
  model_.sizes.layers = 2;
  for (const char* module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    in_floats_.insert(absl::StrCat("model.layers.1.", module, ".weight"));
  for (const char* name : {"model.layers.1.", "model.layers.1"}) {
    skipped_ = json::array({name, "model.layers.0.mlp.up", "model.lay"});
    Write(Quantization::kNf4);
    SNUG_ASSERT_OK(Load());
  }
}

TEST_F(PackedWeightTest, WhatIsLeftOutIsWhatConfigSays) {
  const std::string list = "quantization_config.llm_int8_skip_modules";
  skipped_ = {"up_proj"};
  EXPECT_THAT(Refusal([](auto&) {}),
              HasSubstr("\"model.layers.0.mlp.up_proj.weight\" is U8, expected F32, BF16 or F16 (" +
                        list + ", or transformers' class, names \"up_proj\"), in "));
  skipped_ = {"proj"};
  in_floats_ = {kMatrix};
  EXPECT_THAT(Refusal([](auto&) {}), HasSubstr("down_proj.weight\" is U8"));
  skipped_ = {"lm_head", "down_proj"};
  EXPECT_THAT(Refusal([](auto&) {}),
              HasSubstr("up_proj.weight\" is F32, expected codes as of the others (" + list +
                        " does not name it: [\"lm_head\", \"down_proj\"]), in "));
  skipped_ = {"model.layers.*.mlp"};
  EXPECT_THAT(Refusal([](auto&) {}),
              HasSubstr("quantization_config.llm_int8_skip_modules is [\"model.layers.*.mlp\"]; "
                        "accepted: at most 1024 names of modules"));
}

// Outside the layers the headers alone tell: versions of transformers leave out other modules.
TEST_F(PackedWeightTest, AHeadIsInCodesWhereTheFilesHaveIts) {
  for (const json& skipped : {json(nullptr), json::array({"o_proj"})}) {
    skipped_ = skipped;
    in_floats_.clear();
    if (!skipped.is_null()) in_floats_ = {"model.layers.0.self_attn.o_proj.weight"};
    outside_ = {"lm_head.weight"};
    Write(Quantization::kNf4);
    SNUG_ASSERT_OK(Load());
    ExpectBytes(Loaded("lm_head.weight").nf4.codes, "lm_head.weight");
    const program::Components bytes = program::StaticComponents(program_, {8, 1, 8}, {}, 0);
    EXPECT_EQ(parameters_->held(program_).base, bytes.weights);
    outside_.clear();
    Write(Quantization::kNf4);
    SNUG_ASSERT_OK(Load());
    EXPECT_EQ(KindOf(program_, "lm_head.weight"), Quantization::kNone);
  }
}

TEST_F(PackedWeightTest, AHeadInCodesIsNeitherNamedNorTrainedNorTied) {
  outside_ = {"lm_head.weight"};
  skipped_ = {"lm_head"};
  EXPECT_THAT(Refusal([](auto&) {}),
              HasSubstr("\"lm_head.weight\" is U8, expected F32, BF16 or F16 ("
                        "quantization_config.llm_int8_skip_modules, or transformers' class, names "
                        "\"lm_head\"), in "));
  skipped_ = nullptr;
  Write(Quantization::kNf4);
  program::TrainingMode mode = program::LoraMode();
  mode.adapter.modules_to_save = {"lm_head"};
  EXPECT_THAT(std::string(Load(mode).message()),
              HasSubstr("\"lm_head.weight\" is U8, expected F32, BF16 or F16 (the job trains it "
                        "whole: lora.modules_to_save), in "));
  auto tied = *program::ReadModelConfig(folder_ / "model");
  EXPECT_EQ(tied.outer_codes, std::vector<std::string>{"lm_head"});
  tied.tied_embeddings = true;
  const auto program = *program::BuildProgram(tied, program::LoraMode());
  EXPECT_EQ(KindOf(program, program::kEmbeddingKey), Quantization::kNone);
  const auto index = *program::ReadModelIndex(folder_ / "model", tied);
  EXPECT_THAT(std::string(program::CheckBaseWeights(program, index).message()),
              HasSubstr("\"lm_head.weight\" is U8"));
}

TEST_F(PackedWeightTest, AnotherModeThanTheFilesIsRefused) {
  Write(Quantization::kNf4);
  EXPECT_THAT(std::string(Load(program::FullMode()).message()),
              HasSubstr("quantization: the model's weights are in nf4, beside which an adapter"));
  program::TrainingMode int8 = program::LoraMode();
  int8.quantization = Quantization::kInt8;
  EXPECT_THAT(std::string(Load(int8).message()), HasSubstr("is int8, and the model's weights are"));
  int8.quantization = Quantization::kNf4;
  SNUG_ASSERT_OK(Load(int8));
}

// Versions of bitsandbytes saved codes in the order in which a device's products read them.
TEST_F(PackedWeightTest, AnotherOrderOfCodesIsRefused) {
  Write(Quantization::kInt8, true, [&](std::vector<ToyTensor>& tensors) {
    Tensor(tensors, "model.layers.0.mlp.up_proj.weight_format").bytes = "\x02";
  });
  EXPECT_THAT(std::string(Load().message()), HasSubstr("(weight_format 2); accepted: rows, 0"));
}

TEST_F(PackedWeightTest, CodesOfAnotherShapeAreRefused) {
  Write(Quantization::kInt8, true, [&](std::vector<ToyTensor>& tensors) {
    std::swap(Tensor(tensors, kMatrix).shape[0], Tensor(tensors, kMatrix).shape[1]);
  });
  EXPECT_THAT(std::string(Load().message()), HasSubstr("is of another shape"));
}

TEST_F(PackedWeightTest, WhatIsWrongIsNamed) {
  const std::string matrix = kMatrix;
  const auto without = [&](const char* part) {
    return [=](std::vector<ToyTensor>& tensors) {
      std::erase_if(tensors, [&](const ToyTensor& each) { return each.key == matrix + part; });
    };
  };
  EXPECT_THAT(Refusal(without(".absmax")), HasSubstr("up_proj.weight.absmax"));
  EXPECT_THAT(Refusal(without(".nested_quant_map")), HasSubstr("nested_quant_map"));
  EXPECT_THAT(Refusal(without("")), HasSubstr("scales for \"model.layers.0.mlp.up_proj.weight\""));
  EXPECT_THAT(Refusal(without(".quant_state.bitsandbytes__nf4")), HasSubstr("expected codes"));
  EXPECT_THAT(
      Refusal([&](auto& tensors) { Tensor(tensors, matrix) = Codes(matrix, Drawn(100, 1)); }),
      HasSubstr("codes U8 of 100 elements, expected U8 of 5120"));
  EXPECT_THAT(Refusal([&](auto& tensors) {
                ToyTensor& levels = Tensor(tensors, matrix + ".quant_map");
                levels = Floats(levels.key, std::vector<float>(16, 0.5f));
              }),
              HasSubstr("code 0 of a matrix is 0.5, expected -1"));
  for (const char* wrong :
       {R"({"quant_type": "nf4", "blocksize": 128, "shape": [160, 64]})", "[]", "{",
        R"({"quant_type": "nf4", "blocksize": 64, "nested_blocksize": 256, "shape": [64, 160]})",
        R"({"quant_type": "nf4", "blocksize": 64, "nested_blocksize": 256, "shape": [160, 64],
            "nested_offset": 1e300})"})
    EXPECT_THAT(Refusal([&](auto& tensors) {
                  ToyTensor& state = Tensor(tensors, matrix + ".quant_state.bitsandbytes__nf4");
                  state = Codes(state.key, wrong);
                }),
                HasSubstr("up_proj.weight.quant_state.bitsandbytes__nf4"))
        << wrong;
}

}  // namespace
}  // namespace snug::weights

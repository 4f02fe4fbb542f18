// Parameters from files as they come: of another number type, at any byte, a tied head saved twice.
// Whatever the file, a parameter has the same values and counts what the daemon predicted for it
// from config.json alone.
#include "worker/weights/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/toy_run.h"
#include "tests/worker/train/toy_job.h"
#include "worker/execute/host_copy.h"

namespace snug::weights {
namespace {

using checkpoint::TempFolder;
using program::DType;
using program::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using train::TensorsOf;
using train::ToyModel;
using train::ToyTensor;
using train::WriteModel;

// Larger than the piece in which a tensor is converted, and no multiple of it.
ToyModel LargeModel() { return {.sizes = {1, 64, 4, 2, 96, 1031}}; }

Program ProgramOf(const std::string& folder, const program::TrainingMode& mode) {
  return *program::BuildProgram(*program::ReadModelConfig(folder), mode);
}

float ValueAt(const execute::View& view, int64_t i) {
  if (view.dtype == DType::kF32) return view.as<float>()[i];
  const uint32_t bits = uint32_t{view.as<uint16_t>()[i]} << 16;
  float value = 0.0f;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Every base parameter, rounded to bf16 at most, perhaps from fp16 before.
void ExpectValues(const Program& program, const Parameters& parameters, const ToyModel& exact) {
  const std::vector<ToyTensor> tensors = TensorsOf(exact);
  for (size_t p = 0; p < program.parameters.size(); ++p) {
    if (program.parameters[p].adapter) continue;
    const execute::View& view = parameters.views()[p].value;
    for (const ToyTensor& tensor : tensors) {
      if (tensor.key != program.parameters[p].key) continue;
      const auto* values = reinterpret_cast<const float*>(tensor.bytes.data());
      for (int64_t i = 0; i < view.elements(); ++i) {
        ASSERT_NEAR(ValueAt(view, i), values[i], std::abs(values[i]) / 200 + 1e-7)
            << tensor.key << " " << i;
      }
    }
  }
}

// A part of the optimizer's.
int64_t MasterBytes(const Program& program) {
  int64_t bytes = 0;
  for (const program::Parameter& parameter : program.parameters) {
    if (HasMaster(parameter)) bytes += (parameter.elements() * 4 + 63) / 64 * 64;
  }
  return bytes;
}

// What is held outside the files and what is mapped, against the daemon's static bytes.
void ExpectPredictedBytes(const ToyModel& model, const program::TrainingMode& mode) {
  const TempFolder folder;
  WriteModel(folder / "model", model);
  const Program program = ProgramOf(folder / "model", mode);
  const execute::TrackingAllocator& allocator = execute::TestDevice().allocator();
  const int64_t before = allocator.usage().current_bytes;
  const auto parameters =
      Parameters::Load(program, {.model_dir = folder / "model"}, execute::TestDevice());
  SNUG_ASSERT_OK(parameters);
  const program::Components bytes = program::StaticComponents(program, {8, 1, 8}, {}, 0);
  const int64_t held = allocator.usage().current_bytes - before + parameters->mapped_bytes();
  EXPECT_EQ(held, bytes.weights + bytes.adapter + bytes.gradients + MasterBytes(program))
      << model.dtype << " shifted by " << model.shift;
  const ParameterBytes parts = parameters->held(program);
  EXPECT_EQ(parts.base, bytes.weights);
  EXPECT_EQ(parts.adapter, bytes.adapter);
  EXPECT_EQ(parts.gradients, bytes.gradients);
  EXPECT_EQ(parts.masters, MasterBytes(program));
  const bool mapped = mode.lora && model.shift % program::SizeOf(mode.compute) == 0 &&
                      model.dtype == (mode.compute == DType::kF32 ? "F32" : "BF16");
  EXPECT_EQ(parameters->mapped_bytes(), mapped ? bytes.weights : 0);
  ToyModel exact = model;
  exact.dtype = "F32";
  ExpectValues(program, *parameters, exact);
}

// Each number type at aligned and at odd places, into fp32 and bf16, frozen and trained.
TEST(ParametersTest, AnyFileGivesTheSameValuesInThePredictedBytes) {
  for (const program::TrainingMode& mode :
       {program::FullMode(), program::LoraMode(), program::LoraMode({"q_proj"}, DType::kBF16),
        program::FullMode(DType::kBF16)}) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
      for (int shift : {0, 1, 2, 4}) {
        ToyModel model = LargeModel();
        model.dtype = dtype;
        model.shift = shift;
        ExpectPredictedBytes(model, mode);
      }
    }
  }
}

// As a product would read them.
std::vector<float> Numbers(const execute::View& view) {
  std::vector<float> numbers(static_cast<size_t>(view.elements()));
  if (view.quantized != nullptr) {
    EXPECT_TRUE(kernels::DequantizeNf4({.from = view.quantized->nf4,
                                        .w = numbers.data(),
                                        .N = view.rows,
                                        .K = view.width,
                                        .w_stride = view.width,
                                        .dtype = kernels::DType::kF32},
                                       nullptr)
                    .ok());
    return numbers;
  }
  for (int64_t i = 0; i < view.elements(); ++i) numbers[static_cast<size_t>(i)] = ValueAt(view, i);
  return numbers;
}

// Weights that no file has as they are needed are made once: who comes second maps the first one's,
// counts the same bytes and holds none of them itself. Trained ones are everybody's own.
TEST(ParametersTest, WhatNoFileHasIsMadeOnceForAll) {
  program::TrainingMode nf4 = program::LoraMode({"q_proj"}, DType::kBF16);
  nf4.quantization = program::Quantization::kNf4;
  for (const program::TrainingMode& mode : {program::LoraMode(), nf4}) {
    const TempFolder folder;
    ToyModel model = LargeModel();
    model.dtype = "F16";
    WriteModel(folder / "model", model);
    const Program program = ProgramOf(folder / "model", mode);
    LoadOptions options = {.model_dir = folder / "model"};
    const Parameters own = *Parameters::Load(program, options, execute::TestDevice());
    options.shared_file = folder / "weights/digest";
    std::filesystem::create_directories(folder / "weights");
    checkpoint::WriteText(options.shared_file, "left by one that died");
    const Parameters first = *Parameters::Load(program, options, execute::TestDevice());
    const auto written = std::filesystem::last_write_time(options.shared_file);
    const Parameters second = *Parameters::Load(program, options, execute::TestDevice());
    EXPECT_EQ(std::filesystem::last_write_time(options.shared_file), written);
    EXPECT_EQ(first.mapped_bytes(), own.held(program).base);
    EXPECT_EQ(second.mapped_bytes(), first.mapped_bytes());
    for (size_t i = 0; i < program.parameters.size(); ++i) {
      const execute::View a = own.views()[i].value, b = second.views()[i].value;
      EXPECT_EQ(Numbers(a), Numbers(b)) << program.parameters[i].key;
      EXPECT_EQ(b.quantized != nullptr, a.quantized != nullptr);
    }
  }
}

int64_t StatusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoll(line.substr(name.size())) * 1024;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

// By how much this process grew while `act` ran, at most.
int64_t PeakGrowth(const std::function<void()>& act) {
  std::ofstream("/proc/self/clear_refs") << 5;  // From here on VmHWM is a new maximum.
  const int64_t before = StatusBytes("VmRSS:");
  act();
  return StatusBytes("VmHWM:") - before;
}

// Of a file of many MiB at most the pages of a piece lie beside their copies: while a model is
// loaded, while it is trained, and while an export of it is read.
TEST(ParametersTest, WhatWasCopiedFromAFileIsNotHeldTwice) {
  constexpr int64_t kFewPieces = 3 * execute::kHostPieceBytes;
  const TempFolder folder;
  WriteModel(folder / "model", {.sizes = {1, 64, 4, 2, 96, 150'000}});
  program::TrainingMode saved = program::LoraMode();
  saved.adapter.modules_to_save = {"embed_tokens"};
  for (const program::TrainingMode& mode :
       {program::FullMode(), program::FullMode(DType::kBF16), saved}) {
    const Program program = ProgramOf(folder / "model", mode);
    const execute::TrackingAllocator& allocator = execute::TestDevice().allocator();
    const int64_t before = allocator.usage().current_bytes;
    absl::StatusOr<Parameters> parameters = absl::UnknownError("not loaded");
    const int64_t loading = PeakGrowth([&] {
      parameters =
          Parameters::Load(program, {.model_dir = folder / "model"}, execute::TestDevice());
    });
    SNUG_ASSERT_OK(parameters);
    EXPECT_LT(loading, allocator.usage().current_bytes - before + kFewPieces);
    if (mode.lora) continue;
    const program::TensorIndex index = *program::ReadModelIndex(folder / "model");
    const int64_t reading =
        PeakGrowth([&] { SNUG_ASSERT_OK(parameters->ReadTrained(program, index)); });
    EXPECT_LT(reading, kFewPieces);
  }
}

// Sum of squares over the number of elements.
double MeanSquare(const execute::View& view) {
  double sum = 0.0;
  for (int64_t i = 0; i < view.elements(); ++i) sum += std::pow(ValueAt(view, i), 2);
  return sum / static_cast<double>(view.elements());
}

// Uniform in +-1/sqrt(in) has a variance of 1/(3 in). Half of each adapter is zero, so that a new
// one changes nothing.
TEST(ParametersTest, NewAdaptersAreDrawnAsPeftDrawsThem) {
  const TempFolder folder;
  WriteModel(folder / "model", LargeModel());
  const Program program =
      ProgramOf(folder / "model", program::LoraMode({"lm_head", "embed_tokens"}));
  const auto parameters =
      Parameters::Load(program, {.model_dir = folder / "model"}, execute::TestDevice());
  SNUG_ASSERT_OK(parameters);
  std::map<std::string, double> mean_square;
  for (size_t p = 0; p < program.parameters.size(); ++p) {
    if (!program.parameters[p].adapter) continue;
    mean_square[program.parameters[p].key] = MeanSquare(parameters->views()[p].value);
  }
  const std::string prefix = "base_model.model.";
  ASSERT_EQ(mean_square.size(), 4u);
  EXPECT_EQ(mean_square.at(prefix + "model.embed_tokens.lora_embedding_A"), 0.0);
  EXPECT_NEAR(mean_square.at(prefix + "model.embed_tokens.lora_embedding_B"), 1.0, 0.2);
  EXPECT_NEAR(mean_square.at(prefix + "lm_head.lora_A.weight"), 1.0 / (3 * 64), 1e-3);
  EXPECT_EQ(mean_square.at(prefix + "lm_head.lora_B.weight"), 0.0);
}

// Rows from `first` on against the mean of those before, within what the last digit leaves.
void ExpectMeanRows(const execute::View& table, int64_t first) {
  ASSERT_GT(table.rows, first);
  for (int64_t c = 0; c < table.width; ++c) {
    double mean = 0.0;
    for (int64_t row = 0; row < first; ++row) mean += ValueAt(table, row * table.width + c);
    mean /= static_cast<double>(first);
    for (int64_t row = first; row < table.rows; ++row)
      EXPECT_NEAR(ValueAt(table, row * table.width + c), mean, 1e-7) << row << " " << c;
  }
}

// Of the file's 61 rows, 58 belong to tokens: 3 are made anew and 4 appended.
TEST(ParametersTest, RowsOfAddedTokensAreTheMeanOfThoseBefore) {
  const TempFolder folder;
  const ToyModel model;
  WriteModel(folder / "model", model);
  program::ModelConfig config = *program::ReadModelConfig(folder / "model");
  config.file_vocabulary = config.vocabulary;
  config.first_added = 58;
  config.vocabulary = 65;
  program::TrainingMode saved = program::LoraMode();
  saved.adapter.modules_to_save = {"embed_tokens", "lm_head"};
  for (const program::TrainingMode& mode :
       {program::FullMode(), program::FullMode(DType::kBF16), saved}) {
    const Program program = *program::BuildProgram(config, mode);
    const auto parameters =
        Parameters::Load(program, {.model_dir = folder / "model"}, execute::TestDevice());
    SNUG_ASSERT_OK(parameters);
    int tables = 0;
    for (size_t p = 0; p < program.parameters.size(); ++p) {
      if (!IsTable(program.parameters[p])) continue;
      const execute::View &exact = parameters->exact(p), &value = parameters->views()[p].value;
      EXPECT_EQ(value.rows, 65);
      ExpectMeanRows(exact, 58);
      EXPECT_NEAR(ValueAt(value, 64 * value.width), ValueAt(exact, 64 * value.width), 1e-3);
      const std::vector<ToyTensor> tensors = TensorsOf(model);
      const auto same = [&](const ToyTensor& tensor) {
        return tensor.key == program.parameters[p].key &&
               std::memcmp(tensor.bytes.data(), exact.data, 58 * 32 * sizeof(float)) == 0;
      };
      EXPECT_TRUE(std::any_of(tensors.begin(), tensors.end(), same));
      ++tables;
    }
    EXPECT_EQ(tables, 2);
  }
}

// What the file has in fp32 is not lost to bf16: the value is the master's, rounded.
TEST(ParametersTest, AMasterHasTheDigitsOfTheFile) {
  const TempFolder folder;
  const ToyModel model;
  WriteModel(folder / "model", model);
  const Program program = ProgramOf(folder / "model", program::FullMode(DType::kBF16));
  auto parameters =
      Parameters::Load(program, {.model_dir = folder / "model"}, execute::TestDevice());
  SNUG_ASSERT_OK(parameters);
  const std::vector<ToyTensor> tensors = TensorsOf(model);
  ASSERT_EQ(tensors.size(), program.parameters.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const execute::View &master = parameters->exact(i), &value = parameters->views()[i].value;
    ASSERT_EQ(static_cast<size_t>(master.bytes()), tensors[i].bytes.size());
    EXPECT_EQ(std::memcmp(master.data, tensors[i].bytes.data(), tensors[i].bytes.size()), 0);
    EXPECT_EQ(value.dtype, DType::kBF16);
    EXPECT_NEAR(ValueAt(value, 0), ValueAt(master, 0), std::abs(ValueAt(master, 0)) / 256);
    master.as<float>()[0] = 3.0f;
    SNUG_ASSERT_OK(parameters->RoundMasters());
    EXPECT_EQ(ValueAt(value, 0), 3.0f);
  }
}

absl::Status LoadTied(const std::string& folder, const std::vector<ToyTensor>& tensors) {
  ToyModel model;
  model.tied = true;
  WriteModel(folder, model, tensors);
  return Parameters::Load(ProgramOf(folder, program::LoraMode()), {.model_dir = folder},
                          execute::TestDevice())
      .status();
}

// The embedding a second time, under the head's name.
ToyTensor HeadLike(const std::vector<ToyTensor>& tensors) {
  for (const ToyTensor& tensor : tensors) {
    if (tensor.key != "model.embed_tokens.weight") continue;
    ToyTensor head = tensor;
    head.key = "lm_head.weight";
    return head;
  }
  return {};
}

TEST(ParametersTest, ATiedHeadMayBeSavedTwiceButOnlyAsTheSameMatrix) {
  const TempFolder folder;
  std::vector<ToyTensor> tensors = TensorsOf({.tied = true});
  SNUG_ASSERT_OK(LoadTied(folder / "once", tensors));
  tensors.push_back(HeadLike(tensors));
  SNUG_ASSERT_OK(LoadTied(folder / "twice", tensors));
  tensors.back().bytes.back() ^= 1;
  const absl::Status differs = LoadTied(folder / "other", tensors);
  EXPECT_EQ(differs.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(differs.message()),
              AllOf(HasSubstr("other/model.safetensors"),
                    HasSubstr("lm_head.weight differs from model.embed_tokens.weight"),
                    HasSubstr("tie_word_embeddings")));
}

// An adapter beside which the tied matrix was trained whole, loaded with these settings of PEFT's.
absl::Status LoadWithTiedMatrix(const TempFolder& folder, const std::string& settings,
                                bool one_matrix) {
  ToyModel model;
  model.tied = true;
  const std::string of_model = folder / "model", of_adapter = folder / "adapter";
  std::filesystem::remove_all(folder.path());
  std::filesystem::create_directories(of_adapter);
  WriteModel(of_model, model);
  program::TrainingMode mode = program::LoraMode({"q_proj"});
  mode.adapter.modules_to_save = {"embed_tokens"};
  const Program program = ProgramOf(of_model, mode);
  std::vector<ToyTensor> tensors;
  for (const program::Parameter& parameter : program.parameters) {
    if (!InAdapterFile(parameter)) continue;
    const auto bytes = static_cast<size_t>(parameter.elements()) * sizeof(float);
    tensors.push_back(
        {AdapterFileKey(parameter), "F32", parameter.shape, std::string(bytes, '\0')});
    if (parameter.key != program::kEmbeddingKey) continue;
    tensors.push_back(tensors.back());
    tensors.back().key = std::string(program::kAdapterPrefix) + program::kHeadKey;
    if (!one_matrix) tensors.back().bytes.back() ^= 1;
  }
  train::WriteTensors(of_adapter + "/adapter_model.safetensors", tensors);
  checkpoint::WriteText(of_adapter + "/adapter_config.json",
                        R"({"r": 16, "lora_alpha": 32, "target_modules": ["q_proj"],
                            "modules_to_save": ["embed_tokens"])" +
                            settings + "}");
  return Parameters::Load(program, {.model_dir = of_model, .init_adapter = of_adapter},
                          execute::TestDevice())
      .status();
}

// PEFT's default trains the two names apart: one of the matrices would be dropped.
TEST(ParametersTest, AnAdapterOfATiedMatrixIsOneThatWasTrainedTied) {
  const TempFolder folder;
  SNUG_ASSERT_OK(LoadWithTiedMatrix(folder, R"(, "ensure_weight_tying": true)", true));
  for (const char* apart : {"", R"(, "ensure_weight_tying": false)"}) {
    const absl::Status refused = LoadWithTiedMatrix(folder, apart, true);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("adapter_config.json: ensure_weight_tying is false"));
  }
  EXPECT_THAT(
      std::string(LoadWithTiedMatrix(folder, R"(, "ensure_weight_tying": true)", false).message()),
      HasSubstr("adapter_model.safetensors: lm_head.weight differs from model.embed_tokens"));
}

}  // namespace
}  // namespace snug::weights

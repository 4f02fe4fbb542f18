#include "tests/worker/train/toy_job.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "worker/program/eval_metrics.h"
#include "worker/program/files/added_tokens.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/generation.h"
#include "worker/program/lower.h"
#include "worker/train/dataset.h"
#include "worker/train/prompts.h"

namespace snug::train {
namespace {

constexpr size_t kHeaderMultiple = 8;

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string Rounded(const std::vector<float>& values) {
  return BytesOf(std::vector<T>(values.begin(), values.end()));
}

std::string Encoded(const std::vector<float>& values, const std::string& dtype) {
  if (dtype == "BF16") return Rounded<c10::BFloat16>(values);
  return dtype == "F16" ? Rounded<c10::Half>(values) : BytesOf(values);
}

program::ModelConfig ConfigOf(const ToyModel& model) {
  program::ModelConfig config = program::LlamaShape(model.sizes);
  config.tied_embeddings = model.tied;
  return config;
}

void WriteConfig(const std::string& path, const ToyModel& model) {
  const program::LlamaSizes& sizes = model.sizes;
  const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"num_hidden_layers", sizes.layers},
                                 {"hidden_size", sizes.width},
                                 {"num_attention_heads", sizes.heads},
                                 {"num_key_value_heads", sizes.kv_heads},
                                 {"intermediate_size", sizes.mlp_width},
                                 {"vocab_size", sizes.vocabulary},
                                 {"max_position_embeddings", 32768},
                                 {"tie_word_embeddings", model.tied},
                                 {"attention_dropout", model.attention_dropout}};
  std::ofstream(path) << config.dump(1) << "\n";
}

program::Program ProgramOf(const AttemptOptions& attempt) {
  program::ModelConfig config = *program::ReadModelConfig(attempt.model_dir);
  EXPECT_TRUE(program::AddTokens(attempt.model_dir, attempt.added_tokens, config).ok());
  EXPECT_TRUE(program::ChooseTask(attempt.task, config).ok());
  return *program::BuildProgram(config, attempt.mode);
}

program::LengthCounts LengthsOf(const AttemptOptions& attempt, const std::string& data) {
  if (data.empty()) return {};
  const Dataset dataset = *Dataset::Open(data, ProgramOf(attempt).config.vocabulary);
  return dataset.rows().lengths();
}

}  // namespace

void WriteTensors(const std::string& path, const std::vector<ToyTensor>& tensors, int shift) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const ToyTensor& tensor : tensors) {
    header[tensor.key] = {{"dtype", tensor.dtype},
                          {"shape", tensor.shape},
                          {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderMultiple - 1) / kHeaderMultiple * kHeaderMultiple +
                  static_cast<size_t>(shift),
              ' ');
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << data;
  ASSERT_TRUE(file.good()) << path;
}

std::vector<ToyTensor> TensorsOf(const ToyModel& model) {
  std::mt19937 random(model.seed);
  std::normal_distribution<float> normal;
  std::vector<ToyTensor> tensors;
  const program::Program program = *program::BuildProgram(ConfigOf(model), program::FullMode());
  for (const program::Parameter& parameter : program.parameters) {
    const bool norm = parameter.shape.size() == 1;
    std::vector<float> values(static_cast<size_t>(parameter.elements()));
    for (float& value : values)
      value = norm ? 1.0f + 0.1f * normal(random) : model.deviation * normal(random);
    tensors.push_back({parameter.key, model.dtype, parameter.shape, Encoded(values, model.dtype)});
  }
  return tensors;
}

void WriteModel(const std::string& folder, const ToyModel& model) {
  WriteModel(folder, model, TensorsOf(model));
}

void WriteModel(const std::string& folder, const ToyModel& model,
                const std::vector<ToyTensor>& tensors) {
  std::filesystem::create_directories(folder);
  WriteConfig(folder + "/config.json", model);
  WriteTensors(folder + "/model.safetensors", tensors, model.shift);
}

void WriteData(const std::string& folder, const std::vector<int64_t>& row_tokens,
               int64_t vocabulary, uint32_t seed, const std::vector<ToyTensor>& labels) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  std::vector<float> weights;
  std::vector<int64_t> offsets = {0};
  for (int64_t tokens : row_tokens) {
    for (int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(vocabulary)));
      weights.push_back(t == 0 || t % 3 == 2 ? 0.0f : 1.0f);
    }
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  std::filesystem::create_directories(folder);
  const auto all = static_cast<int64_t>(ids.size());
  std::vector<ToyTensor> tensors = {
      {"row_offsets", "I64", {static_cast<int64_t>(offsets.size())}, BytesOf(offsets)},
      {"input_ids", "I32", {all}, BytesOf(ids)},
      {"loss_weights", "F32", {all}, BytesOf(weights)}};
  tensors.insert(tensors.end(), labels.begin(), labels.end());
  WriteTensors(folder + "/dataset.safetensors", tensors);
  std::ofstream(folder + "/dataset.json") << R"({"sha256": "toy"})";
}

void WritePrompts(const std::string& path, const std::vector<int64_t>& tokens, int64_t vocabulary,
                  uint32_t seed) {
  std::mt19937 random(seed);
  nlohmann::json prompts = nlohmann::json::array();
  for (int64_t count : tokens) {
    std::vector<uint32_t> ids;
    for (int64_t t = 0; t < count; ++t)
      ids.push_back(static_cast<uint32_t>(random() % static_cast<uint32_t>(vocabulary)));
    prompts.push_back({{"text", "prompt " + std::to_string(prompts.size())}, {"ids", ids}});
  }
  std::string bytes;
  for (int64_t id = 0; id < vocabulary; ++id) {
    const std::string text = std::to_string(id) + " ";
    bytes += std::string(1, '\0') + static_cast<char>(text.size()) + text;
  }
  const nlohmann::json file = {
      {"prompts", prompts}, {"stop_ids", {vocabulary - 1}}, {"token_bytes", bytes}};
  std::ofstream(path) << file.dump();
}

TrainingOptions ToyTraining() {
  TrainingOptions training;
  training.max_steps = 4;
  training.batch_rows = 2;
  training.accumulation = 2;
  training.learning_rate = 1e-2;
  training.max_grad_norm = 0.0;
  training.max_seq_length = 48;
  training.packing = false;
  return training;
}

AttemptOptions ToyAttempt(const std::string& folder, const program::TrainingMode& mode,
                          const TrainingOptions& training) {
  AttemptOptions attempt;
  attempt.job_id = "toy";
  attempt.model_dir = attempt.base_model_name = folder + "/model";
  attempt.mode = mode;
  attempt.training = training;
  attempt.threads = 2;
  attempt.train_data = folder + "/data";
  if (std::filesystem::exists(folder + "/eval")) attempt.eval_data = folder + "/eval";
  attempt.attempt_dir = folder + "/attempt-1";
  attempt.checkpoints_dir = folder + "/checkpoints";
  const program::Program program = ProgramOf(attempt);
  attempt.plan = program::NamedPlanOf(program, program::RecomputePlan(program, 0));
  attempt.key = program::WorstBatch(LengthsOf(attempt, attempt.train_data), BatchingOf(training));
  return attempt;
}

program::Prediction PredictionOf(const AttemptOptions& attempt) {
  program::PredictOptions options;
  const bool cpu = attempt.device.starts_with("cpu:");
  options.lower = {.key = attempt.key,
                   .machine = {.threads = attempt.threads, .cpu = cpu},
                   .training = true,
                   .head_rows = attempt.head_rows};
  options.context_bytes = attempt.context_bytes;
  const program::Batching batching = BatchingOf(attempt.training);
  const program::LengthCounts evaluation = LengthsOf(attempt, attempt.eval_data);
  if (!evaluation.empty()) options.evaluation_key = program::WorstBatch(evaluation, batching);
  options.data_bytes =
      program::DataBytes(LengthsOf(attempt, attempt.train_data), evaluation, batching) +
      (evaluation.empty() ? 0
                          : program::EvaluationBytes(ProgramOf(attempt).config, evaluation.rows));
  if (!attempt.prompts_file.empty()) {
    const Prompts prompts =
        *Prompts::Read(attempt.prompts_file, ProgramOf(attempt).config.vocabulary);
    options.generation_key = program::GenerationKey(ProgramOf(attempt).config, prompts.longest(),
                                                    attempt.training.samples.max_new_tokens);
  }
  options.measures_drift = attempt.drift_steps > 0;
  const program::Program program = ProgramOf(attempt);
  return *program::Predict(program, *program::PlanOf(program, attempt.plan), options);
}

}  // namespace snug::train

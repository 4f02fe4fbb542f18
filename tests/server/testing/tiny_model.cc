#include "tests/server/testing/tiny_model.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "nlohmann/json.hpp"
#include "worker/program/model_config.h"

namespace snug::server {
namespace {

constexpr const char* kConfig = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
  "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "vocab_size": 64, "max_position_embeddings": 128,
  "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false,
  "hidden_act": "silu", "attention_bias": false, "bos_token_id": 1, "eos_token_id": 2
})";

}  // namespace

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void WriteParameters(const std::string& path, const program::Program& program, Holds holds) {
  nlohmann::json header = nlohmann::json::object();
  int64_t end = 0;
  for (const program::Parameter& parameter : program.parameters) {
    if (parameter.adapter != (holds == Holds::kAdapter)) continue;
    const int64_t bytes = parameter.elements() * 4;
    header[parameter.key] = {
        {"dtype", "F32"}, {"shape", parameter.shape}, {"data_offsets", {end, end + bytes}}};
    end += bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file << text << std::string(static_cast<size_t>(end), '\0');
}

void WriteTinyModel(const std::string& dir) {
  std::filesystem::create_directories(dir);
  WriteText(dir + "/config.json", kConfig);
  const auto config = program::ParseModelConfig(kConfig, "config.json");
  const auto program = program::BuildProgram(config.value(), {});
  WriteParameters(dir + "/model.safetensors", program.value(), Holds::kBase);
}

void WriteTinyDataset(const std::string& path, int rows, int tokens) {
  std::ofstream file(path);
  for (int row = 0; row < rows; ++row) {
    nlohmann::json ids = nlohmann::json::array();
    for (int token = 0; token < tokens; ++token) ids.push_back(3 + (row * 7 + token) % 60);
    file << nlohmann::json{{"input_ids", ids}, {"labels", ids}}.dump() << "\n";
  }
}

}  // namespace snug::server

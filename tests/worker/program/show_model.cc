// What the readers of worker/program make of files, for tests that compare them with the Python
// libraries that write these files. Reads lines, answers each with one line of JSON:
//   header FILE                  a safetensors file
//   model DIR                    its config.json and weights, against the model's program
//   adapter DIR MODEL_DIR RANK   adapter_model.safetensors of an adapter on all linear layers
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "proto/snug/status_macros.h"
#include "worker/program/files/added_tokens.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/model_config.h"
#include "worker/program/program.h"

namespace snug::program {
namespace {

using nlohmann::json;

json ToJson(const ModelConfig& config) {
  const char* const kinds[] = {"default", "linear", "llama3", "yarn"};
  const RopeScaling& scaling = config.rope_scaling;
  json rope = {{"rope_type", kinds[static_cast<int>(scaling.kind)]},
               {"rope_theta", config.rope_theta}};
  if (scaling.kind != RopeScaling::Kind::kDefault) rope["factor"] = scaling.factor;
  if (scaling.kind == RopeScaling::Kind::kLlama3) {
    rope["low_freq_factor"] = scaling.low_freq_factor;
    rope["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.kind == RopeScaling::Kind::kYarn) {
    rope["beta_fast"] = scaling.beta_fast;
    rope["beta_slow"] = scaling.beta_slow;
  }
  if (scaling.kind >= RopeScaling::Kind::kLlama3) {
    rope["original_max_position_embeddings"] = scaling.original_max_positions;
  }
  return {{"model_type", config.model_type},
          {"num_hidden_layers", config.layers},
          {"hidden_size", config.width},
          {"num_attention_heads", config.heads},
          {"num_key_value_heads", config.kv_heads},
          {"head_dim", config.head_width},
          {"intermediate_size", config.mlp_width},
          {"vocab_size", config.vocabulary},
          {"max_position_embeddings", config.max_positions},
          {"rms_norm_eps", config.norm_epsilon},
          {"tie_word_embeddings", config.tied_embeddings},
          {"rope_parameters", rope}};
}

// What sets a family apart, in our own words.
json TraitsOf(const ModelConfig& config) {
  json slides = json::array();
  for (int64_t layer = 0; layer < config.layers; ++layer) slides.push_back(config.slides(layer));
  return {{"window", config.window},
          {"slides", slides},
          {"attention_softcap", config.attention_softcap},
          {"logit_softcap", config.logit_softcap},
          {"query_scalar", config.query_scalar},
          {"local_rope_theta", config.local_rope_theta},
          {"rotary_share", config.rotary_share},
          {"attention_factor", config.rope_scaling.attention_factor}};
}

json ToJson(const TensorIndex& index) {
  json tensors = json::object();
  for (const auto& [name, entry] : index) {
    tensors[name] = {{"dtype", entry.dtype},
                     {"shape", entry.shape},
                     {"file", entry.file},
                     {"begin", entry.begin},
                     {"bytes", entry.bytes}};
  }
  return tensors;
}

absl::StatusOr<json> ShowModel(const std::string& dir) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(dir));
  ASSIGN_OR_RETURN(const TensorIndex index, ReadModelIndex(dir));
  ASSIGN_OR_RETURN(const Program program, BuildProgram(config, TrainingMode()));
  RETURN_IF_ERROR(CheckWeights(program, index));
  return json{{"config", ToJson(config)}, {"traits", TraitsOf(config)}, {"tensors", ToJson(index)}};
}

absl::StatusOr<json> ShowAdapter(const std::string& dir, const std::string& model_dir,
                                 int64_t rank) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model_dir));
  TrainingMode mode;
  mode.lora = true;
  mode.adapter.rank = rank;
  ASSIGN_OR_RETURN(const Program program, BuildProgram(config, mode));
  ASSIGN_OR_RETURN(const TensorIndex index,
                   ReadSafetensorsHeader(dir + "/adapter_model.safetensors"));
  RETURN_IF_ERROR(CheckAdapter(program, index));
  return json{{"tensors", ToJson(index)}};
}

absl::StatusOr<json> ShowAddedTokens(const std::string& dir, const std::string& token) {
  ASSIGN_OR_RETURN(ModelConfig config, ReadModelConfig(dir));
  RETURN_IF_ERROR(AddTokens(dir, {token}, config));
  return json{{"first_added", config.first_added}, {"vocabulary", config.vocabulary}};
}

absl::StatusOr<json> Show(const std::string& line) {
  std::istringstream words(line);
  std::string command, path, model_dir, token;
  int64_t rank = 0;
  words >> command >> path;
  if (command == "model") return ShowModel(path);
  if (command == "adapter" && words >> model_dir >> rank) return ShowAdapter(path, model_dir, rank);
  if (command == "add" && words >> token) return ShowAddedTokens(path, token);
  if (command != "header") return absl::InvalidArgumentError("no such command: " + line);
  ASSIGN_OR_RETURN(const TensorIndex index, ReadSafetensorsHeader(path));
  return json{{"tensors", ToJson(index)}};
}

}  // namespace
}  // namespace snug::program

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const absl::StatusOr<nlohmann::json> shown = snug::program::Show(line);
    const nlohmann::json error = {{"error", std::string(shown.status().message())}};
    std::cout << (shown.ok() ? *shown : error) << std::endl;
  }
}

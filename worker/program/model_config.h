// What a model directory's config.json says, in the terms of a program. Reads the spelling of
// transformers 4 and of transformers 5; refuses what no program here computes, naming the field and
// what is accepted.
#ifndef WORKER_PROGRAM_MODEL_CONFIG_H_
#define WORKER_PROGRAM_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace snug::program {

enum class DType : uint8_t { kF32, kBF16 };

constexpr int64_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// How rotary frequencies are stretched beyond the length the model was trained at.
struct RopeScaling {
  enum class Kind : uint8_t { kDefault, kLinear, kLlama3 };
  Kind kind = Kind::kDefault;
  double factor = 1.0;
  double low_freq_factor = 1.0;           // llama3
  double high_freq_factor = 4.0;          // llama3
  int64_t original_max_positions = 8192;  // llama3
};

struct ModelConfig {
  std::string model_type;  // "llama"
  int64_t layers = 0;      // L
  int64_t width = 0;       // C
  int64_t heads = 0;       // H
  int64_t kv_heads = 0;
  int64_t head_width = 0;  // D, not always C / H
  int64_t mlp_width = 0;
  int64_t vocabulary = 0;     // V
  int64_t max_positions = 0;  // Tokens.
  double norm_epsilon = 1e-6;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tied_embeddings = false;
};

// `text` is the content of a config.json; `where` names it in errors.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view text, std::string_view where);
absl::StatusOr<ModelConfig> ReadModelConfig(const std::string& model_dir);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_MODEL_CONFIG_H_

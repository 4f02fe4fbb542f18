// Rotary positions beyond the length that a model was trained at.
#ifndef WORKER_PROGRAM_ROPE_SCALING_H_
#define WORKER_PROGRAM_ROPE_SCALING_H_

#include <cstdint>

namespace snug::program {

// How rotary frequencies are stretched beyond the length the model was trained at.
struct RopeScaling {
  enum class Kind : uint8_t { kDefault, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kDefault;
  double factor = 1.0;
  double low_freq_factor = 1.0;           // llama3
  double high_freq_factor = 4.0;          // llama3
  int64_t original_max_positions = 8192;  // llama3, yarn
  double beta_fast = 32.0;                // yarn
  double beta_slow = 1.0;                 // yarn
  bool truncate = true;                   // yarn
  double attention_factor = 1.0;          // yarn: of cosines and sines
  bool operator==(const RopeScaling&) const = default;
};

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ROPE_SCALING_H_

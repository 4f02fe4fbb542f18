// The rotary embedding part of a config.json, which has had four spellings.
#ifndef WORKER_PROGRAM_ROPE_CONFIG_H_
#define WORKER_PROGRAM_ROPE_CONFIG_H_

#include <cstdint>
#include <vector>

#include "worker/program/files/json_fields.h"
#include "worker/program/model_config.h"

namespace snug::program {

// What a family's rotary embedding may be. Kinds whose frequencies depend on the lengths in a batch
// (dynamic, longrope) are never accepted: the loss of a row would depend on its neighbours.
struct RopeRules {
  std::vector<RopeScaling::Kind> kinds = {RopeScaling::Kind::kDefault, RopeScaling::Kind::kLinear,
                                          RopeScaling::Kind::kLlama3, RopeScaling::Kind::kYarn};
  bool partial = false;  // partial_rotary_factor may be less than 1.
};

// Fills rope_theta, rope_scaling and rotary_share of `config`, whose sizes are there; what is wrong
// is added to the violations of `fields`, which are those of the whole config.json.
void ReadRope(JsonFields& fields, const RopeRules& rules, ModelConfig& config);

// The same where the layers that slide have angles of their own (Gemma 3): fills local_rope_theta
// too. Either {"full_attention": {...}, "sliding_attention": {...}} as rope_parameters, or
// rope_theta, rope_scaling and rope_local_base_freq.
void ReadRopeOfLayerTypes(JsonFields& fields, ModelConfig& config);

// Tokens that a document may have: the model's positions, or what scaling stretches those to that
// it was trained with before, where that is more.
int64_t LongestSequence(const ModelConfig& config);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ROPE_CONFIG_H_

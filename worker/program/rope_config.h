// The rotary embedding part of a config.json, which has had three spellings.
#ifndef WORKER_PROGRAM_ROPE_CONFIG_H_
#define WORKER_PROGRAM_ROPE_CONFIG_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/program/model_config.h"

namespace snug::program {

// Fills rope_theta and rope_scaling of `config`; what is wrong is added to `violations`. `document`
// is the whole config.json, an object.
void ReadRope(const nlohmann::json& document, ModelConfig& config,
              std::vector<std::string>* violations);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_ROPE_CONFIG_H_

// PEFT's LoraConfig, as far as it is computed here; fields of the same names mean the same.
#ifndef WORKER_PROGRAM_LORA_CONFIG_H_
#define WORKER_PROGRAM_LORA_CONFIG_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace snug::program {

inline constexpr char kAllLinear[] = "all-linear";

// Of a job and of an adapter that it starts from.
inline constexpr int64_t kMaxAdapterRank = 4096;

struct LoraConfig {
  int64_t rank = 16;  // r
  double alpha = 32.0;
  double dropout = 0.0;
  bool rslora = false;  // scale = alpha / sqrt(r)
  // Names, or (PEFT: a string instead of a list) one regular expression; IsRegex tells them apart.
  std::vector<std::string> target_modules = {kAllLinear};
  // By regular expressions that a module's path ends with.
  std::map<std::string, int64_t> rank_pattern;
  std::map<std::string, double> alpha_pattern;
  std::vector<std::string> exclude_modules;  // As target_modules.
  std::vector<int64_t> layers_to_transform;  // None: all.
  std::vector<std::string> modules_to_save;  // What a module's path ends with: trained whole.
};

// One entry that is the name of no module.
bool IsRegex(const std::vector<std::string>& names);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LORA_CONFIG_H_

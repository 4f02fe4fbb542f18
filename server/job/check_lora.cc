#include "server/job/check_lora.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/job/job_ref.h"

namespace snug::server {
namespace {

// Far above what anybody writes by hand: PEFT's own shorthand for many names has 20 of them.
constexpr int kMaxNames = 1000;
constexpr size_t kMaxNameBytes = 1000;
constexpr double kMaxAlpha = 1e6;

template <typename Names>
void CheckNames(const char* field, const Names& names, Checker& check) {
  if (names.size() > kMaxNames) check.Add(field, absl::StrCat("at most ", kMaxNames, " entries"));
  for (const std::string& name : names) {
    if (name.empty()) return check.Add(field, "holds an empty name");
    if (name.size() > kMaxNameBytes)
      return check.Add(field,
                       absl::StrCat("a name of ", name.size(), " bytes; at most ", kMaxNameBytes));
  }
}

// Of a map's entries, as names.
template <typename Map>
std::vector<std::string> KeysOf(const Map& map) {
  std::vector<std::string> keys;
  for (const auto& entry : map) keys.push_back(entry.first);
  return keys;
}

}  // namespace

void CheckLora(const v1::LoraSpec& lora, Checker& check) {
  if (lora.has_r()) check.Integer("lora.r", lora.r(), 1, program::kMaxAdapterRank);
  if (lora.has_lora_alpha()) check.Positive("lora.lora_alpha", lora.lora_alpha(), kMaxAlpha);
  check.Real("lora.lora_dropout", lora.lora_dropout(), 0.0, 1.0, /*open=*/true);
  CheckNames("lora.target_modules", lora.target_modules(), check);
  CheckNames("lora.exclude_modules", lora.exclude_modules(), check);
  CheckNames("lora.modules_to_save", lora.modules_to_save(), check);
  CheckNames("lora.rank_pattern", KeysOf(lora.rank_pattern()), check);
  CheckNames("lora.alpha_pattern", KeysOf(lora.alpha_pattern()), check);
  for (const auto& [pattern, rank] : lora.rank_pattern())
    check.Integer("lora.rank_pattern", rank, 1, program::kMaxAdapterRank);
  for (const auto& [pattern, alpha] : lora.alpha_pattern())
    check.Positive("lora.alpha_pattern", alpha, kMaxAlpha);
  for (const int32_t layer : lora.layers_to_transform())
    check.Integer("lora.layers_to_transform", layer, 0, INT32_MAX);
  if (!lora.init_adapter().empty() && !NamesJob(lora.init_adapter()))
    check.Path("lora.init_adapter", lora.init_adapter());
}

program::LoraConfig LoraConfigOf(const v1::LoraSpec& lora) {
  return {
      .rank = lora.r(),
      .alpha = lora.lora_alpha(),
      .dropout = lora.lora_dropout(),
      .rslora = lora.use_rslora(),
      .target_modules = {lora.target_modules().begin(), lora.target_modules().end()},
      .rank_pattern = {lora.rank_pattern().begin(), lora.rank_pattern().end()},
      .alpha_pattern = {lora.alpha_pattern().begin(), lora.alpha_pattern().end()},
      .exclude_modules = {lora.exclude_modules().begin(), lora.exclude_modules().end()},
      .layers_to_transform = {lora.layers_to_transform().begin(), lora.layers_to_transform().end()},
      .modules_to_save = {lora.modules_to_save().begin(), lora.modules_to_save().end()}};
}

}  // namespace snug::server

#include "worker/checkpoint/compatibility.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/program/files/json_text.h"
#include "worker/program/model_config.h"

namespace snug::checkpoint {
namespace {

// Values that vLLM's --max-lora-rank takes; 16 is what it has without.
constexpr int64_t kVllmRanks[] = {16, 32, 64, 128, 256, 320, 512};

constexpr char kMerge[] = "; `merge: true` gives a model that it loads";

// What a server that holds a matrix pair per linear module and one scale for all cannot hold.
std::vector<std::string> BeyondPairs(const program::LoraConfig& lora,
                                     const program::AdapterContents& contents) {
  std::vector<std::string> reasons;
  if (!contents.saved.empty()) {
    reasons.push_back(absl::StrCat("modules_to_save is not null (", contents.saved.size(),
                                   " modules trained whole)"));
  }
  if (!lora.rank_pattern.empty() || !lora.alpha_pattern.empty()) {
    reasons.push_back(
        "it scales every module by lora_alpha and r, not by rank_pattern and alpha_pattern");
  }
  return reasons;
}

// vLLM takes adapters of these two in the families whose class says so: Llama's and those that are
// made of it.
std::vector<std::string> EndsBeyondVllm(const program::AdapterContents& contents,
                                        const std::string& model_type) {
  std::vector<std::string> reasons;
  if (model_type == "llama" || model_type == "mistral" || model_type == "phi3") return reasons;
  for (const char* module : {program::kEmbeddingPath, program::kHeadPath}) {
    if (!contents.adapted.contains(module)) continue;
    reasons.push_back(absl::StrCat("it takes no adapter of ", module, " in ", model_type));
  }
  return reasons;
}

int64_t ModulesOf(const program::AdapterContents& contents) {
  return static_cast<int64_t>(contents.adapted.size() + contents.saved.size());
}

ReaderReport Peft(const program::AdapterContents& contents) {
  return {"PEFT", true, ModulesOf(contents), ModulesOf(contents), ""};
}

ReaderReport Vllm(const program::LoraConfig& lora, const program::AdapterContents& contents,
                  const std::string& model_type) {
  const int64_t all = ModulesOf(contents);
  std::vector<std::string> reasons = BeyondPairs(lora, contents);
  for (std::string& reason : EndsBeyondVllm(contents, model_type))
    reasons.push_back(std::move(reason));
  const int64_t rank = contents.largest_rank();
  const auto* limit = std::lower_bound(std::begin(kVllmRanks), std::end(kVllmRanks), rank);
  if (limit == std::end(kVllmRanks))
    reasons.push_back(absl::StrCat("rank ", rank, " is above 512"));
  if (!reasons.empty()) return {"vLLM", false, 0, all, absl::StrJoin(reasons, "; ") + kMerge};
  const bool by_default = limit == std::begin(kVllmRanks);
  return {"vLLM", true, all, all,
          by_default ? "" : absl::StrCat("start it with --max-lora-rank ", *limit)};
}

ReaderReport Lorax(const program::LoraConfig& lora, const program::AdapterContents& contents) {
  const int64_t all = ModulesOf(contents);
  std::vector<std::string> reasons = BeyondPairs(lora, contents);
  if (contents.adapted.contains(program::kEmbeddingPath))
    reasons.push_back("embed_tokens has an adapter");
  if (!reasons.empty()) return {"LoRAX", false, 0, all, absl::StrJoin(reasons, "; ") + kMerge};
  return {"LoRAX", true, all, all, ""};
}

}  // namespace

std::vector<ReaderReport> ReadersOf(const program::LoraConfig& lora,
                                    const program::AdapterContents& contents,
                                    const std::string& model_type) {
  const bool encoder_decoder = model_type == "t5";
  if (encoder_decoder || absl::StartsWith(model_type, program::kReversibleType)) {
    const std::string reason = absl::StrCat(
        encoder_decoder ? "it takes no adapters of a model of type " : "it has no model of type ",
        model_type);
    return {Peft(contents),
            {"vLLM", false, 0, ModulesOf(contents), reason},
            {"LoRAX", false, 0, ModulesOf(contents), reason}};
  }
  return {Peft(contents), Vllm(lora, contents, model_type), Lorax(lora, contents)};
}

absl::StatusOr<std::string> CompatibilityText(const std::vector<ReaderReport>& reports) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ReaderReport& report : reports) {
    list.push_back({{"reader", report.reader},
                    {"loads", report.loads},
                    {"modules", report.modules},
                    {"of_modules", report.of_modules},
                    {"notes", report.notes}});
  }
  return program::JsonText({{"readers", list}}, program::kIndent);
}

std::string CompatibilityTable(const std::vector<ReaderReport>& reports) {
  std::string table = "| reader | loads it | modules | |\n|---|---|---|---|\n";
  for (const ReaderReport& report : reports) {
    absl::StrAppend(&table, "| ", report.reader, " | ", report.loads ? "yes" : "no", " | ",
                    report.modules, " of ", report.of_modules, " | ", report.notes, " |\n");
  }
  return table;
}

}  // namespace snug::checkpoint

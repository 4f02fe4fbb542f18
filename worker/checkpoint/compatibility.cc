#include "worker/checkpoint/compatibility.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/json_text.h"

namespace snug::checkpoint {
namespace {

// Values that vLLM's --max-lora-rank takes; 16 is what it has without.
constexpr int64_t kVllmRanks[] = {16, 32, 64, 128, 256, 320, 512};

constexpr char kMerge[] = "; `merge: true` gives a model that it loads";

// What a server that holds a matrix pair per linear module and one scale for all cannot hold.
std::vector<std::string> BeyondPairs(const program::LoraConfig& lora,
                                     const AdapterContents& contents) {
  std::vector<std::string> reasons;
  if (!contents.saved.empty()) {
    reasons.push_back(absl::StrCat("modules_to_save is not null (", contents.saved.size(),
                                   " modules trained whole)"));
  }
  if (contents.adapted.contains(program::kEmbeddingPath)) {
    reasons.push_back("embed_tokens has an adapter");
  }
  if (!lora.rank_pattern.empty() || !lora.alpha_pattern.empty()) {
    reasons.push_back(
        "it scales every module by lora_alpha and r, not by rank_pattern and alpha_pattern");
  }
  return reasons;
}

ReaderReport Peft(int64_t all) { return {"PEFT", true, all, all, ""}; }

ReaderReport Vllm(const program::LoraConfig& lora, const AdapterContents& contents, int64_t all) {
  std::vector<std::string> reasons = BeyondPairs(lora, contents);
  const int64_t rank = contents.largest_rank();
  const auto* limit = std::lower_bound(std::begin(kVllmRanks), std::end(kVllmRanks), rank);
  if (limit == std::end(kVllmRanks))
    reasons.push_back(absl::StrCat("rank ", rank, " is above 512"));
  if (!reasons.empty()) return {"vLLM", false, 0, all, absl::StrJoin(reasons, "; ") + kMerge};
  const bool by_default = limit == std::begin(kVllmRanks);
  return {"vLLM", true, all, all,
          by_default ? "" : absl::StrCat("start it with --max-lora-rank ", *limit)};
}

ReaderReport Lorax(const program::LoraConfig& lora, const AdapterContents& contents, int64_t all) {
  const std::vector<std::string> reasons = BeyondPairs(lora, contents);
  if (!reasons.empty()) return {"LoRAX", false, 0, all, absl::StrJoin(reasons, "; ") + kMerge};
  return {"LoRAX", true, all, all, ""};
}

}  // namespace

std::vector<ReaderReport> ReadersOf(const program::LoraConfig& lora,
                                    const AdapterContents& contents) {
  const auto all = static_cast<int64_t>(contents.adapted.size() + contents.saved.size());
  return {Peft(all), Vllm(lora, contents, all), Lorax(lora, contents, all)};
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
  return JsonText({{"readers", list}}, kIndent);
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

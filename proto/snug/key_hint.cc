// Loose names map to ours in a table; all else follows from the schema and from other_names.
#include "proto/snug/key_hint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/other_names.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Names of other tools that could mean several things: a hint, no more. Those that can mean only
// one are read as that (other_names.cc).
struct LooseName {
  const char* key;
  const char* path;  // Ours.
};
constexpr LooseName kLooseNames[] = {
    {"alpha", "lora.lora_alpha"},
    {"data", "dataset"},
    {"dataset_path", "dataset"},
    {"dropout", "lora.lora_dropout"},
    {"gradient_accumulation", "training.gradient_accumulation_steps"},
    {"name", "display_name"},
    {"scheduler", "training.lr_scheduler_type"},
    {"seq_len", "training.max_seq_length"},
    {"train_batch_size", "training.per_device_train_batch_size"},
    {"train_dataset", "dataset"},
    {"warmup", "training.warmup_ratio"},
};

// Restricted Damerau-Levenshtein distance, three rows at a time.
int EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

// How often each letter is there.
using Letters = std::array<int, 256>;
Letters LettersOf(absl::string_view word) {
  Letters letters = {};
  for (const char letter : word) ++letters[static_cast<unsigned char>(letter)];
  return letters;
}

// At least so many edits make one of the other: an edit adds one letter at most, and takes one.
int FewestEdits(const Letters& a, const Letters& b) {
  int more = 0, fewer = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    more += std::max(0, a[i] - b[i]);
    fewer += std::max(0, b[i] - a[i]);
  }
  return std::max(more, fewer);
}

std::string LastPart(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string lower = absl::AsciiStrToLower(word);
  const Letters letters = LettersOf(lower);
  std::string nearest;
  int fewest = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const auto [shorter, longer] = std::minmax({lower.size(), candidate.size()});
    const int allowed = std::min(std::max<int>(2, static_cast<int>(longer) / 3), fewest - 1);
    // The distance takes long: it is worked out only of what can be near enough.
    if (static_cast<int64_t>(longer - shorter) > allowed) continue;
    const std::string other = absl::AsciiStrToLower(candidate);
    if (FewestEdits(letters, LettersOf(other)) > allowed) continue;
    const int edits = EditDistance(lower, other);
    const bool all_replaced = edits >= static_cast<int>(candidate.size());
    if (edits > allowed || all_replaced) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string KeyHint(absl::string_view key, const Descriptor& at, const Descriptor& root) {
  const std::vector<std::string> paths = FieldPaths(root);
  const std::string lower = absl::AsciiStrToLower(key);
  for (const LooseName& name : kLooseNames) {
    if (lower == name.key && std::find(paths.begin(), paths.end(), name.path) != paths.end())
      return absl::StrCat("did you mean ", name.path, "?");
  }
  // Of another section.
  if (const OurName ours = OurNameOf("", lower, nullptr, root); !ours.path.empty())
    return absl::StrCat("did you mean ", ours.path, "?");
  for (const std::string& path : paths) {
    if (LastPart(path) == lower) return absl::StrCat("did you mean ", path, "?");
  }
  std::vector<std::string> here;
  for (int i = 0; i < at.field_count(); ++i) here.push_back(at.field(i)->name());
  if (std::string near = Nearest(key, here); !near.empty())
    return absl::StrCat("did you mean ", near, "?");
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(LastPart(path));
  const std::string elsewhere = Nearest(key, names);
  for (const std::string& path : paths) {
    if (!elsewhere.empty() && LastPart(path) == elsewhere)
      return absl::StrCat("did you mean ", path, "?");
  }
  return absl::StrCat("the keys here are ", absl::StrJoin(here, ", "));
}

}  // namespace snug

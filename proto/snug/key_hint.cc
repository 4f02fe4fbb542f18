// Names of other fine-tuning tools map to ours in one table; all else follows from the schema.
#include "proto/snug/key_hint.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kMaxPathDepth =
    4;  // Of messages within messages, when fields are looked for elsewhere.

struct Synonym {
  const char* key;
  const char* path;  // Ours.
};
// As transformers, TRL, PEFT, LLaMA-Factory, axolotl, Unsloth, torchtune and OpenAI call them.
constexpr Synonym kSynonyms[] = {
    {"adapter_name_or_path", "lora.init_adapter"},
    {"alpha", "lora.lora_alpha"},
    {"base_model", "model"},
    {"base_model_name_or_path", "model"},
    {"batch_size", "training.per_device_train_batch_size"},
    {"bf16", "training.precision"},
    {"clip_grad_norm", "training.max_grad_norm"},
    {"cutoff_len", "training.max_seq_length"},
    {"data", "dataset"},
    {"dataset_path", "dataset"},
    {"datasets", "dataset"},
    {"dropout", "lora.lora_dropout"},
    {"dtype", "training.precision"},
    {"epochs", "training.num_train_epochs"},
    {"eval_strategy", "training.eval_steps"},
    {"evaluation_strategy", "training.eval_steps"},
    {"finetuning_type", "method"},
    {"fp16", "training.precision"},
    {"gradient_accumulation", "training.gradient_accumulation_steps"},
    {"gradient_checkpointing", "memory.stash"},
    {"activation_checkpointing", "memory.stash"},
    {"gradient_clipping", "training.max_grad_norm"},
    {"lora_dim", "lora.r"},
    {"lora_r", "lora.r"},
    {"lora_rank", "lora.r"},
    {"lora_target", "lora.target_modules"},
    {"lora_target_linear", "lora.target_modules"},
    {"lora_target_modules", "lora.target_modules"},
    {"lr", "training.learning_rate"},
    {"lr_scheduler", "training.lr_scheduler_type"},
    {"max_length", "training.max_seq_length"},
    {"max_memory", "memory.budget"},
    {"max_seq_len", "training.max_seq_length"},
    {"memory_budget", "memory.budget"},
    {"micro_batch_size", "training.per_device_train_batch_size"},
    {"model_max_length", "training.max_seq_length"},
    {"model_name", "model"},
    {"model_name_or_path", "model"},
    {"n_epochs", "training.num_train_epochs"},
    {"name", "display_name"},
    {"num_epochs", "training.num_train_epochs"},
    {"random_seed", "training.seed"},
    {"rank", "lora.r"},
    {"run_name", "display_name"},
    {"sample_packing", "training.packing"},
    {"scheduler", "training.lr_scheduler_type"},
    {"seq_len", "training.max_seq_length"},
    {"sequence_len", "training.max_seq_length"},
    {"sequence_length", "training.max_seq_length"},
    {"suffix", "display_name"},
    {"torch_dtype", "training.precision"},
    {"train_batch_size", "training.per_device_train_batch_size"},
    {"train_dataset", "dataset"},
    {"train_file", "dataset"},
    {"training_file", "dataset"},
    {"val_set_size", "eval_split"},
    {"val_size", "eval_split"},
    {"validation_file", "eval_dataset"},
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

// All dotted paths of fields below `message`, its own first. Maps are leaves.
void CollectPaths(const Descriptor& message, const std::string& prefix, int depth,
                  std::vector<std::string>* paths) {
  for (int i = 0; i < message.field_count(); ++i)
    paths->push_back(absl::StrCat(prefix, message.field(i)->name()));
  if (depth == kMaxPathDepth) return;
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE || field.is_repeated()) continue;
    CollectPaths(*field.message_type(), absl::StrCat(prefix, field.name(), "."), depth + 1, paths);
  }
}

std::string LastPart(const std::string& path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::string Nearest(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::string lower = absl::AsciiStrToLower(word);
  std::string nearest;
  int fewest = std::numeric_limits<int>::max();
  for (const std::string& candidate : candidates) {
    const int edits = EditDistance(lower, absl::AsciiStrToLower(candidate));
    const int allowed =
        std::max<int>(2, static_cast<int>(std::max(lower.size(), candidate.size())) / 3);
    const bool all_replaced = edits >= static_cast<int>(candidate.size());
    if (edits >= fewest || edits > allowed || all_replaced) continue;
    fewest = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string KeyHint(absl::string_view key, const Descriptor& at, const Descriptor& root) {
  std::vector<std::string> paths;
  CollectPaths(root, "", 1, &paths);
  const std::string lower = absl::AsciiStrToLower(key);
  for (const Synonym& synonym : kSynonyms) {
    if (lower == synonym.key &&
        std::find(paths.begin(), paths.end(), synonym.path) != paths.end()) {
      return absl::StrCat("did you mean ", synonym.path, "?");
    }
  }
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

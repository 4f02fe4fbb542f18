#include "proto/snug/other_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/refused_names.h"

namespace snug {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr int kMaxPathDepth = 4;  // Of messages within messages.

// Sections whose fields may stand at the top level, as other tools have them all in one list.
constexpr const char* kOpenSections[] = {"training", "lora"};

// The same thing under another name, as transformers, TRL, PEFT, LLaMA-Factory, axolotl, Unsloth,
// torchtune and OpenAI call it.
struct Synonym {
  const char* key;
  const char* path;
  bool commas = false;  // "a,b" is a list there, not text.
};
constexpr Synonym kSynonyms[] = {
    {"adapter_name_or_path", "lora.init_adapter"},
    {"additional_target", "lora.modules_to_save", true},
    {"base_model", "model"},
    {"base_model_name_or_path", "model"},
    {"batch_size", "training.per_device_train_batch_size"},
    {"clip_grad_norm", "training.max_grad_norm"},
    {"cutoff_len", "training.max_seq_length"},
    {"early_stopping_min_delta", "training.early_stopping_threshold"},
    {"epochs", "training.num_train_epochs"},
    {"eval_file", "eval_dataset"},
    {"evaluation_strategy", "training.eval_strategy"},
    {"finetuning_type", "method"},
    {"gradient_clipping", "training.max_grad_norm"},
    {"learning_rate_scheduler", "training.lr_scheduler_type"},
    {"lora_dim", "lora.r"},
    {"lora_r", "lora.r"},
    {"lora_rank", "lora.r"},
    {"lora_target", "lora.target_modules", true},
    {"lora_target_modules", "lora.target_modules"},
    {"lr", "training.learning_rate"},
    {"lr_scheduler", "training.lr_scheduler_type"},
    {"max_length", "training.max_seq_length"},
    {"max_memory", "memory.budget"},
    {"max_new_tokens", "training.sample_max_new_tokens"},
    {"max_seq_len", "training.max_seq_length"},
    {"memory_budget", "memory.budget"},
    {"micro_batch_size", "training.per_device_train_batch_size"},
    {"model_max_length", "training.max_seq_length"},
    {"model_name", "model"},
    {"model_name_or_path", "model"},
    {"n_epochs", "training.num_train_epochs"},
    {"noisy_embedding_alpha", "training.neftune_noise_alpha"},
    {"num_epochs", "training.num_train_epochs"},
    {"optimizer", "training.optim"},
    {"random_seed", "training.seed"},
    {"rank", "lora.r"},
    {"run_name", "display_name"},
    {"sample_packing", "training.packing"},
    {"sequence_len", "training.max_seq_length"},
    {"sequence_length", "training.max_seq_length"},
    {"suffix", "display_name"},
    {"tokens", "added_tokens"},
    {"train_file", "dataset"},
    {"training_file", "dataset"},
    {"use_packing", "training.packing"},
    {"val_set_size", "eval_split"},
    {"val_size", "eval_split"},
    {"validation_file", "eval_dataset"},
};

constexpr const char kShare[] = "above 0 and below 1";

// A setting and a value of it (or kShare), by ours. An empty path: it asks for what is so anyway;
// an empty value of ours: as it was given. The key may be one of ours, with a value that is not.
struct Translation {
  const char* key;
  const char* value;
  const char* path;
  const char* our_value;
};
constexpr Translation kTranslations[] = {
    {"adapter", "lora", "method", "lora"},
    {"auto_find_batch_size", "false", "", ""},
    {"auto_find_batch_size", "true", "training.per_device_train_batch_size", "-1"},
    {"bf16", "auto", "training.precision", "bf16"},
    {"bf16", "false", "training.precision", "fp32"},
    {"bf16", "true", "training.precision", "bf16"},
    {"bnb_4bit_compute_dtype", "bfloat16", "training.precision", "bf16"},
    {"bnb_4bit_compute_dtype", "float32", "training.precision", "fp32"},
    {"bnb_4bit_quant_type", "nf4", "", ""},
    {"bnb_4bit_use_double_quant", "true", "", ""},
    {"double_quantization", "true", "", ""},
    {"dtype", "bf16", "training.precision", "bf16"},
    {"dtype", "bfloat16", "training.precision", "bf16"},
    {"dtype", "float32", "training.precision", "fp32"},
    {"dtype", "fp32", "training.precision", "fp32"},
    {"init_lora_weights", "true", "", ""},
    {"load_in_4bit", "true", "quantization", "nf4"},
    {"load_in_8bit", "true", "quantization", "int8"},
    {"lora_task_type", "causal_lm", "task", "causal_lm"},
    {"lora_task_type", "seq_cls", "task", "sequence_classification"},
    {"lora_task_type", "seq_2_seq_lm", "task", "seq2seq_lm"},
    {"lora_task_type", "token_cls", "task", "token_classification"},
    {"lora_target", "all", "lora.target_modules", "all-linear"},
    {"lora_target_linear", "true", "lora.target_modules", "all-linear"},
    {"max_seq_length", "auto", "training.max_seq_length", "-1"},
    {"max_steps", "-1", "training.max_steps", "0"},
    {"peft_type", "lora", "method", "lora"},
    {"per_device_train_batch_size", "auto", "training.per_device_train_batch_size", "-1"},
    {"quantization_bit", "4", "quantization", "nf4"},
    {"quantization_bit", "8", "quantization", "int8"},
    {"quantization_method", "bnb", "", ""},
    {"quantization_method", "bitsandbytes", "", ""},
    {"quantization_type", "nf4", "", ""},
    {"report_to", "none", "", ""},
    {"resize_vocab", "true", "", ""},
    {"stage", "sft", "", ""},
    {"task_type", "causal_lm", "task", "causal_lm"},
    {"task_type", "seq_cls", "task", "sequence_classification"},
    {"task_type", "seq_2_seq_lm", "task", "seq2seq_lm"},
    {"task_type", "token_cls", "task", "token_classification"},
    {"torch_dtype", "bfloat16", "training.precision", "bf16"},
    {"torch_dtype", "float32", "training.precision", "fp32"},
    {"train_sampling_strategy", "group_by_length", "training.group_by_length", "true"},
    {"train_sampling_strategy", "random", "training.group_by_length", "false"},
    {"use_peft", "false", "method", "full"},
    {"use_peft", "true", "method", "lora"},
    {"warmup_steps", kShare, "training.warmup_ratio", ""},
};

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

bool HasPath(const Descriptor& root, absl::string_view path) {
  const size_t dot = path.find('.');
  const FieldDescriptor* field = root.FindFieldByName(std::string(path.substr(0, dot)));
  if (field == nullptr || dot == absl::string_view::npos) return field != nullptr;
  return field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated() &&
         HasPath(*field->message_type(), path.substr(dot + 1));
}

std::string SectionOf(absl::string_view path) {
  const size_t dot = path.rfind('.');
  return std::string(dot == absl::string_view::npos ? "" : path.substr(0, dot));
}

// Whether names of other tools are known in the section: at the top level and where it is open.
bool IsOpen(absl::string_view section) {
  return section.empty() || std::find(std::begin(kOpenSections), std::end(kOpenSections),
                                      section) != std::end(kOpenSections);
}

// Whether a key that means `path` may stand at `section`: in its own, or at the top.
bool MayStand(absl::string_view section, absl::string_view path) {
  return section.empty() || section == SectionOf(path);
}

bool Says(const std::string& value, const char* of_row) {
  double share = 0.0;
  if (of_row != kShare) return absl::EqualsIgnoreCase(value, of_row);
  return absl::SimpleAtod(value, &share) && share > 0.0 && share < 1.0;
}

// QLoRA by one word, where another tool, or someone, has the method's.
bool SaysQlora(const YamlEntry& entry) {
  constexpr const char* kKeys[] = {"adapter", "finetuning_type", "method"};
  return entry.value.kind == YamlNode::Kind::kScalar &&
         absl::EqualsIgnoreCase(entry.value.scalar, "qlora") &&
         std::find(std::begin(kKeys), std::end(kKeys), entry.key) != std::end(kKeys);
}

// Null where a node is neither a scalar nor a list of one.
const std::string* OnlyScalar(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return &node.scalar;
  return node.items.size() == 1 ? OnlyScalar(node.items.front()) : nullptr;
}

YamlNode ListOf(const YamlNode& text) {
  YamlNode list{YamlNode::Kind::kSequence, text.line, {}, {}, {}};
  for (const absl::string_view part : absl::StrSplit(text.scalar, ','))
    list.items.push_back({YamlNode::Kind::kScalar,
                          text.line,
                          std::string(absl::StripAsciiWhitespace(part)),
                          {},
                          {}});
  return list;
}

YamlEntry* FindEntry(YamlNode* mapping, const std::string& key) {
  for (YamlEntry& entry : mapping->entries)
    if (entry.key == key) return &entry;
  return nullptr;
}

// Where a field of `path` belongs in the file; null: its section is no mapping, which is an error
// of its own.
YamlNode* SectionAt(YamlNode* file, const std::string& section, int line) {
  if (section.empty()) return file;
  YamlEntry* entry = FindEntry(file, section);
  if (entry == nullptr) {
    file->entries.push_back({section, line, {YamlNode::Kind::kMapping, line, {}, {}, {}}, {}});
    return &file->entries.back().value;
  }
  if (entry->value.kind == YamlNode::Kind::kNull) entry->value.kind = YamlNode::Kind::kMapping;
  return entry->value.kind == YamlNode::Kind::kMapping ? &entry->value : nullptr;
}

class Renamer {
 public:
  Renamer(const Descriptor& root, const NameError& error) : root_(root), error_(error) {}

  // Takes out of `mapping`, which is at `section`, what has another name or another place.
  void TakeOut(const std::string& section, YamlNode* mapping) {
    std::vector<YamlEntry> stay;
    for (YamlEntry& entry : mapping->entries) {
      if (section.empty() && SaysQlora(entry)) {
        qlora_line_ = entry.line;
        entry.value.scalar = "lora";
      }
      const OurName ours = OurNameOf(section, entry.key, OnlyScalar(entry.value), root_);
      if (ours.kind == OurName::Kind::kUnknown) {
        stay.push_back(std::move(entry));
      } else if (ours.kind == OurName::Kind::kRefused) {
        if (entry.value.kind != YamlNode::Kind::kNull)  // As with our own: not given.
          error_(entry.line, entry.key, absl::StrCat("\"", entry.key, "\": ", ours.why));
      } else if (ours.kind == OurName::Kind::kField) {
        entry.written = std::exchange(entry.key, ours.path);
        if (!ours.value.empty())
          entry.value = {YamlNode::Kind::kScalar, entry.line, ours.value, {}, {}};
        if (ours.commas && absl::StrContains(entry.value.scalar, ','))
          entry.value = ListOf(entry.value);
        moved_.push_back(std::move(entry));
      }
    }
    mapping->entries = std::move(stay);
  }

  void PutBack(YamlNode* file) {
    AddQuantization(file);
    for (YamlEntry& entry : moved_) {
      const std::string path = entry.key, section = SectionOf(path);
      YamlNode* mapping = SectionAt(file, section, entry.line);
      if (mapping == nullptr) continue;
      entry.key = path.substr(section.empty() ? 0 : section.size() + 1);
      mapping->entries.push_back(std::move(entry));
    }
  }

 private:
  // QLoRA's, unless the file says more of it: load_in_4bit stands beside it in most.
  void AddQuantization(const YamlNode* file) {
    constexpr const char* kField = "quantization";
    if (qlora_line_ == 0) return;
    const auto says = [](const YamlEntry& entry) { return entry.key == kField; };
    if (std::any_of(moved_.begin(), moved_.end(), says)) return;
    if (std::any_of(file->entries.begin(), file->entries.end(), says)) return;
    moved_.push_back(
        {kField, qlora_line_, {YamlNode::Kind::kScalar, qlora_line_, "nf4", {}, {}}, "qlora"});
  }

  const Descriptor& root_;
  const NameError& error_;
  std::vector<YamlEntry> moved_;  // Their key is the whole path.
  int qlora_line_ = 0;            // 0: nothing says so.
};

}  // namespace

std::vector<std::string> FieldPaths(const Descriptor& message) {
  std::vector<std::string> paths;
  CollectPaths(message, "", 1, &paths);
  return paths;
}

OurName OurNameOf(absl::string_view section, absl::string_view key, const std::string* value,
                  const Descriptor& root) {
  const std::string own(section.empty() ? key : absl::StrCat(section, ".", key));
  if (!HasPath(root, kOpenSections[0]) || !IsOpen(section)) return {};
  const std::string name = absl::AsciiStrToLower(key);
  for (const Translation& row : kTranslations) {
    if (name != row.key || value == nullptr || !Says(*value, row.value)) continue;
    if (*row.path == '\0') return {.kind = OurName::Kind::kNothing};
    if (MayStand(section, row.path))
      return {.kind = OurName::Kind::kField, .path = row.path, .value = row.our_value};
  }
  if (const char* why = WhyValueRefused(name, value); why != nullptr)
    return {.kind = OurName::Kind::kRefused, .why = why};
  if (HasPath(root, own)) return {};
  for (const Synonym& row : kSynonyms) {
    if (name == row.key && HasPath(root, row.path) && MayStand(section, row.path))
      return {.kind = OurName::Kind::kField, .path = row.path, .commas = row.commas};
  }
  if (AsksForNothing(name, value)) return {.kind = OurName::Kind::kNothing};
  if (const char* why = WhyRefused(name); why != nullptr)
    return {.kind = OurName::Kind::kRefused, .why = why};
  if (!section.empty()) return {};
  for (const char* open : kOpenSections) {
    const std::string path = absl::StrCat(open, ".", name);
    if (HasPath(root, path)) return {.kind = OurName::Kind::kField, .path = path};
  }
  return {};
}

OurName OurNameOfPath(const std::string& path, const std::string& value, const Descriptor& root) {
  const size_t dot = path.find('.');
  if (dot == std::string::npos) return OurNameOf("", path, &value, root);
  return OurNameOf(path.substr(0, dot), path.substr(dot + 1), &value, root);
}

void UseOurNames(const Descriptor& root, YamlNode* file, const NameError& error) {
  if (file->kind != YamlNode::Kind::kMapping) return;
  Renamer renamer(root, error);
  for (YamlEntry& entry : file->entries) {
    if (entry.value.kind != YamlNode::Kind::kMapping) continue;
    const FieldDescriptor* field = root.FindFieldByName(entry.key);
    const bool section = field != nullptr && !field->is_repeated() &&
                         field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (section) renamer.TakeOut(entry.key, &entry.value);
  }
  renamer.TakeOut("", file);
  renamer.PutBack(file);
}

}  // namespace snug

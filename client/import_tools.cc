// What each tool says in a form of its own, datasets aside (import_datasets.cc).
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/importer.h"

namespace snug::client {
namespace {

constexpr const char kModelsTemplate[] =
    "conversations are rendered by the model's own chat template; chat_template names another, a "
    "Jinja file";

bool IsTrue(const YamlNode& node) { return absl::EqualsIgnoreCase(Scalar(&node), "true"); }

double Number(const YamlNode& node) {
  double value = 0;
  return absl::SimpleAtod(Scalar(&node), &value) ? value : 0.0;
}

// axolotl counts evaluations and checkpoints by the epoch.
void PerEpoch(const YamlEntry& entry, const std::string& strategy, JobDraft& draft) {
  const double times = Number(entry.value);
  if (times == 0.0) return;
  draft.SetText(strategy, "epoch");
  if (times != 1.0)
    draft.Note(entry.key, entry.value, "it is once an epoch here, or every so many steps");
}

// A share of all steps is no number of steps.
bool StepShare(const YamlEntry& entry, JobDraft& draft) {
  const double steps = Number(entry.value);
  if (steps <= 0.0 || steps >= 1.0) return false;
  draft.Note(entry.key, entry.value, "give a number of steps, or the strategy epoch");
  return true;
}

// `train_on_inputs`, `train_on_prompt`: whether what the user says is trained as well.
void TrainOnPrompts(const YamlEntry& entry, JobDraft& draft) {
  if (!IsTrue(entry.value)) return;
  draft.SetText("completion_only_loss", "false");
  draft.SetText("assistant_only_loss", "false");
}

void ChatTemplate(const YamlEntry& entry, const YamlNode& file, JobDraft& draft) {
  const std::string name = Scalar(&entry.value);
  const YamlNode* jinja = Find(file, "chat_template_jinja");
  if (name == "jinja" && jinja != nullptr) return draft.Set("chat_template", *jinja);
  if (absl::StrContains(name, "{") || absl::EndsWith(name, ".jinja"))
    return draft.Set("chat_template", entry.value);
  if (!name.empty() && name != "tokenizer_default") {
    draft.Note(entry.key, entry.value, kModelsTemplate);
  }
}

// What is reported to, one or a list: a job writes for TensorBoard itself.
void TakeReports(const YamlEntry& entry, JobDraft& draft) {
  std::vector<YamlNode> names = entry.value.items;
  if (entry.value.kind == YamlNode::Kind::kScalar) names = {entry.value};
  for (const YamlNode& name : names) {
    if (Scalar(&name) == "tensorboard" || Scalar(&name) == "all")
      draft.SetText("training.report_to", "tensorboard");
    else if (Scalar(&name) != "none")
      draft.Note(entry.key, name,
                 "a job writes metrics.jsonl and, with report_to: tensorboard, an event file; snug "
                 "export-metrics writes them for wandb and mlflow");
  }
}

bool TakeAxolotl(const YamlEntry& entry, const YamlNode& file, JobDraft& draft) {
  const std::string& key = entry.key;
  const std::string value = Scalar(&entry.value);
  if (key == "adapter") {
    if (value != "lora" && value != "qlora") return false;
    draft.SetText("method", "lora");
    if (value == "qlora") draft.SetText("quantization", "nf4");
  } else if (key == "val_set_size") {
    if (Number(entry.value) > 0.0) draft.Set("eval_split", entry.value);
  } else if (key == "evals_per_epoch") {
    PerEpoch(entry, "training.eval_strategy", draft);
  } else if (key == "saves_per_epoch") {
    PerEpoch(entry, "training.save_strategy", draft);
  } else if (key == "train_on_inputs") {
    TrainOnPrompts(entry, draft);
  } else if (key == "chat_template") {
    ChatTemplate(entry, file, draft);
  } else if (key == "lora_modules_to_save") {
    draft.Set("lora.modules_to_save", entry.value);
  } else if (key == "use_tensorboard") {
    if (IsTrue(entry.value)) draft.SetText("training.report_to", "tensorboard");
  } else if (key == "eval_steps" || key == "save_steps") {
    return StepShare(entry, draft);
  } else if (key == "tokenizer_config") {
    if (value != Scalar(Find(file, "base_model")))
      draft.Note(key, entry.value, "the tokenizer is that of the model's folder");
  } else {
    return key == "chat_template_jinja";
  }
  return true;
}

bool TakeLlamaFactory(const YamlEntry& entry, JobDraft& draft) {
  const std::string& key = entry.key;
  if (key == "train_on_prompt") {
    TrainOnPrompts(entry, draft);
  } else if (key == "val_size") {
    if (Number(entry.value) > 0.0) draft.Set("eval_split", entry.value);
  } else if (key == "stage") {
    if (Scalar(&entry.value) != "pt") return false;
    draft.SetText("dataset_format", "text");
  } else if (key == "mix_strategy") {
    if (Scalar(&entry.value) != "concat")
      draft.Note(key, entry.value, "datasets follow one another, each by its weight");
  } else if (key == "output_dir" || key == "resume_from_checkpoint") {
    return false;
  } else if (key == "eval_on_start" || key == "predict_with_generate") {
    if (IsTrue(entry.value))
      draft.Note(key, entry.value, "evaluations are by their loss, in and after the training");
  } else {
    return false;
  }
  return true;
}

bool TakeTrl(const YamlEntry& entry, JobDraft& draft) {
  const std::string& key = entry.key;
  if (key == "lora_modules_to_save") {
    draft.Set("lora.modules_to_save", entry.value);
  } else if (key == "eos_token" || key == "pad_token") {
    draft.Note(key, entry.value, "the model's own special tokens are kept");
  } else if (key == "eval_steps" || key == "save_steps") {
    return StepShare(entry, draft);
  } else if (key == "chat_template_path") {
    draft.Set("chat_template", entry.value);
  } else {
    return false;
  }
  return true;
}

constexpr double kRateOfOpenAi = 2e-4;  // As the daemon's own door of that API has it.

void TakeHyperparameters(const YamlNode& node, JobDraft& draft) {
  for (const YamlEntry& entry : node.entries) {
    if (Scalar(&entry.value) == "auto") continue;
    if (entry.key == "n_epochs") {
      draft.Set("training.num_train_epochs", entry.value);
    } else if (entry.key == "batch_size") {
      draft.Set("training.per_device_train_batch_size", entry.value);
    } else if (entry.key == "learning_rate_multiplier" && Number(entry.value) > 0.0) {
      draft.SetYaml("training.learning_rate", absl::StrCat(kRateOfOpenAi * Number(entry.value)));
      draft.Remark("OpenAI's learning rate is its own: learning_rate_multiplier is of 2e-4 here.");
    } else {
      draft.Note(entry.key, entry.value, "no setting of this name is known here");
    }
  }
}

// {"type": "supervised", "supervised": {"hyperparameters": {...}}}
void TakeMethod(const YamlEntry& entry, JobDraft& draft) {
  const std::string type = Scalar(Find(entry.value, "type"));
  if (!type.empty() && type != "supervised")
    draft.Note("method.type", *Find(entry.value, "type"),
               "tuning by preferences or rewards is not offered");
  const YamlNode* supervised = Find(entry.value, "supervised");
  const YamlNode* given = supervised ? Find(*supervised, "hyperparameters") : nullptr;
  if (given != nullptr) TakeHyperparameters(*given, draft);
}

bool TakeOpenAi(const YamlEntry& entry, JobDraft& draft) {
  const std::string& key = entry.key;
  const std::string value = Scalar(&entry.value);
  if (key == "model" && (absl::StartsWith(value, "/") || absl::StartsWith(value, "."))) {
    draft.SetText("model", value);
  } else if (key == "model") {
    draft.Note(
        key, entry.value,
        "a model of OpenAI's cannot be tuned here: give model, a folder or a name of the hub");
  } else if (key == "hyperparameters") {
    TakeHyperparameters(entry.value, draft);
  } else if (key == "method") {
    TakeMethod(entry, draft);
  } else if (key == "integrations") {
    draft.Note(key, entry.value,
               "metrics go to metrics.jsonl and to Prometheus; snug export-metrics writes them for "
               "wandb");
  } else if (key == "metadata") {
    draft.Set("labels", entry.value);
  } else {
    return false;
  }
  return true;
}

// Optimizers are known by many names: adamw_bnb_8bit and paged_adamw_8bit are one AdamW here.
bool TakeOptimizer(const YamlEntry& entry, JobDraft& draft) {
  if (entry.key != "optimizer" && entry.key != "optim") return false;
  const std::string name = Scalar(&entry.value);
  if (absl::StartsWith(name, "adamw_torch") || name == "adamw" || name == "adamw_hf" ||
      name == "adamw_apex_fused")
    return false;
  if (absl::StrContains(name, "adamw") && absl::EndsWith(name, "8bit"))
    draft.SetText("training.optim", "adamw_8bit");
  else
    draft.Note(entry.key, entry.value,
               "the optimizer is AdamW: adamw_torch with fp32 moments, adamw_8bit with 8-bit ones");
  return true;
}

}  // namespace

bool TakeToolKey(Tool tool, const YamlEntry& entry, const YamlNode& file, const std::string& folder,
                 JobDraft& draft) {
  if (TakeDatasetKey(tool, entry, file, folder, draft)) return true;
  if (entry.value.kind == YamlNode::Kind::kNull) return true;
  if (TakeOptimizer(entry, draft)) return true;
  if (entry.key == "report_to") {
    TakeReports(entry, draft);
    return true;
  }
  switch (tool) {
    case Tool::kAxolotl:
      return TakeAxolotl(entry, file, draft);
    case Tool::kLlamaFactory:
      return TakeLlamaFactory(entry, draft);
    case Tool::kTrl:
      return TakeTrl(entry, draft);
    case Tool::kOpenAi:
      return TakeOpenAi(entry, draft);
  }
  return false;
}

namespace {

// What the tools take where nothing is said, and a job file takes otherwise.
struct ToolDefault {
  Tool tool;
  const char* path;
  const char* yaml;
};
constexpr ToolDefault kDefaults[] = {
    {Tool::kAxolotl, "training.per_device_train_batch_size", "1"},
    {Tool::kAxolotl, "training.max_seq_length", "512"},
    {Tool::kLlamaFactory, "training.learning_rate", "5.0e-5"},
    {Tool::kLlamaFactory, "training.num_train_epochs", "3"},
    {Tool::kLlamaFactory, "training.lr_scheduler_type", "linear"},
    {Tool::kTrl, "training.learning_rate", "2.0e-5"},
    {Tool::kTrl, "training.num_train_epochs", "3"},
    {Tool::kTrl, "training.lr_scheduler_type", "linear"},
    {Tool::kTrl, "training.max_seq_length", "1024"},
    {Tool::kTrl, "assistant_only_loss", "false"},
};
// With method: lora. PEFT's modules, which TRL takes, are these of most model types.
constexpr ToolDefault kLoraDefaults[] = {
    {Tool::kLlamaFactory, "lora.r", "8"},
    {Tool::kTrl, "lora.lora_dropout", "0.05"},
    {Tool::kTrl, "lora.target_modules", "[q_proj, v_proj]"},
};

void FillLora(Tool tool, const YamlNode& file, JobDraft& draft) {
  for (const ToolDefault& value : kLoraDefaults)
    if (value.tool == tool) draft.SetYaml(value.path, value.yaml);
  const YamlNode* rank = Find(file, "lora_rank");
  const double alpha = 2.0 * (rank == nullptr ? 8.0 : Number(*rank));
  if (tool == Tool::kLlamaFactory && alpha > 0.0)
    draft.SetYaml("lora.lora_alpha", absl::StrCat(alpha));
}

}  // namespace

void FillToolDefaults(Tool tool, const YamlNode& file, JobDraft& draft) {
  // OpenAI does not say what it trains.
  const bool adapts = tool == Tool::kLlamaFactory || tool == Tool::kOpenAi;
  if (!draft.Has("method")) draft.SetText("method", adapts ? "lora" : "full");
  for (const ToolDefault& value : kDefaults)
    if (value.tool == tool) draft.SetYaml(value.path, value.yaml);
  if (draft.IsLora()) FillLora(tool, file, draft);
  if (tool == Tool::kOpenAi) draft.SetText("dataset_format", "messages");
  // These tools fill a sequence with one row unless they are told otherwise.
  const bool packs = Find(file, "packing") != nullptr || Find(file, "sample_packing") != nullptr;
  if (tool != Tool::kOpenAi && !packs) draft.SetText("training.packing", "false");
  if (!draft.Has("model"))
    draft.Remark("Give model: a folder, or a name of the hub that is in your cache.");
  if (!draft.Has("dataset") && !draft.Has("datasets"))
    draft.Remark("Give dataset: a file, a folder, or a name of the hub that is in your cache.");
}

}  // namespace snug::client

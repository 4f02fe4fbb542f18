#include "worker/checkpoint/adapter_card.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/base_model.h"
#include "worker/program/files/json_text.h"

namespace snug::checkpoint {
namespace {

// A YAML scalar that no reader takes for a number, a boolean or two things. The names that do not
// need it stay as PEFT would write them.
absl::StatusOr<std::string> YamlText(const std::string& text) {
  const bool plain =
      absl::StrContains(text, '/') && std::all_of(text.begin(), text.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '/' || c == '_' || c == '.' || c == '-';
      });
  if (plain && text.front() != '-') return text;
  return program::JsonText(text, program::kOneLine);
}

// One line of text, whatever the user's name for the job has in it.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return text;
}

// A base that nobody else knows by a name has none here.
absl::StatusOr<std::string> FrontMatter(const program::BaseModel& base, const char* pipeline) {
  std::string named, tagged;
  if (!base.name.empty()) {
    ASSIGN_OR_RETURN(const std::string name, YamlText(base.name));
    const std::string adapter_of = "base_model:adapter:" + base.name;
    ASSIGN_OR_RETURN(const std::string quoted, program::JsonText(adapter_of, program::kOneLine));
    named = absl::StrCat("base_model: ", name, "\n");
    tagged = absl::StrCat("- ", name == base.name ? adapter_of : quoted, "\n");
  }
  return absl::StrCat("---\n", named, "library_name: peft\npipeline_tag: ", pipeline, "\ntags:\n",
                      tagged, "- lora\n- transformers\n---\n\n");
}

// With the command that gives it to others.
std::string BaseText(const program::BaseModel& base) {
  if (base.job.empty()) return absl::StrCat("`", OneLine(base.name), "`");
  const std::vector<std::string> parts =
      absl::StrSplit(OneLine(base.job), absl::MaxSplits("/checkpoints/", 1));
  const std::string download = absl::StrCat(" (`snug download ", parts[0], " BASE");
  return parts.size() == 1
             ? absl::StrCat("the model that Snug's job `", parts[0], "` made", download, "`)")
             : absl::StrCat("the model in Snug's checkpoint `", OneLine(base.job), "`", download,
                            " --checkpoint ", parts[1], "`)");
}

// What is not one value for all modules.
std::string OptionsText(const program::LoraConfig& lora, const program::AdapterContents& contents) {
  std::string text;
  const auto list = [&text](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) absl::StrAppend(&text, "\n- ", what, ": ", absl::StrJoin(names, ", "));
  };
  list("trained whole beside the adapter", contents.saved);
  list("left out", lora.exclude_modules);
  const auto number = absl::PairFormatter(" ");
  if (!lora.rank_pattern.empty())
    absl::StrAppend(&text, "\n- other ranks: ", absl::StrJoin(lora.rank_pattern, ", ", number));
  if (!lora.alpha_pattern.empty())
    absl::StrAppend(&text, "\n- other alphas: ", absl::StrJoin(lora.alpha_pattern, ", ", number));
  return text;
}

}  // namespace

absl::StatusOr<program::AdapterContents> ContentsOf(const std::vector<TensorBytes>& adapter) {
  std::vector<program::AdapterTensor> tensors;
  for (const TensorBytes& tensor : adapter)
    tensors.push_back({tensor.key, tensor.dtype, tensor.shape});
  return program::ContentsOf(tensors);
}

namespace {

// The line of code without which the base is too small.
std::string ResizeText(const ExportOptions& options) {
  if (options.vocabulary == 0) return "";
  return absl::StrCat("base.resize_token_embeddings(", options.vocabulary,
                      ")  # for added tokens; the tokenizer here has them\n");
}

// What transformers calls a model of the task, and what people do.
struct TaskNames {
  const char* model;
  const char* pipeline;
  bool classifies;
};

TaskNames NamesOf(const ExportOptions& options) {
  if (options.task.task == program::Task::kTokenClassification)
    return {"AutoModelForTokenClassification", "token-classification", true};
  if (options.task.task == program::Task::kSequenceClassification)
    return {"AutoModelForSequenceClassification", "text-classification", true};
  if (options.task.task == program::Task::kSeq2SeqLm)
    return {"AutoModelForSeq2SeqLM", "text2text-generation", false};
  if (options.task.task == program::Task::kImageClassification)
    return {"AutoModelForImageClassification", "image-classification", true};
  if (options.task.task == program::Task::kMaskedLm)
    return {"AutoModelForMaskedLM", "fill-mask", false};
  return {"AutoModelForCausalLM", "text-generation", false};
}

// The lines of code that load the adapter.
std::string LoadingText(const ExportOptions& options) {
  const auto [model, pipeline, classifies] = NamesOf(options);
  std::string labels;
  if (classifies) absl::StrAppend(&labels, ", num_labels=", options.task.labels);
  if (classifies && options.task.problem)
    absl::StrAppend(&labels, ", problem_type=\"", program::NameOf(*options.task.problem), "\"");
  if (options.task.task == program::Task::kImageClassification)
    absl::StrAppend(&labels, ", ignore_mismatched_sizes=True");  // A head of other classes.
  return absl::StrCat("```python\nfrom peft import PeftModel\nfrom transformers import ", model,
                      "\n\nbase = ", model, ".from_pretrained(BASE", labels, ")\n",
                      ResizeText(options),
                      "model = PeftModel.from_pretrained(base, THIS_FOLDER)\n```\n\n");
}

}  // namespace

absl::StatusOr<std::string> AdapterReadmeText(const ExportOptions& options,
                                              const program::AdapterContents& contents,
                                              const std::vector<ReaderReport>& readers) {
  const program::LoraConfig& lora = options.lora;
  const program::BaseModel base = program::BaseModelOf(options.base_model_name);
  ASSIGN_OR_RETURN(const std::string front, FrontMatter(base, NamesOf(options).pipeline));
  const std::string title = options.display_name.empty() ? "LoRA adapter" : options.display_name;
  return absl::StrCat(
      front, "# ", OneLine(title), "\n\nA LoRA adapter for ", BaseText(base),
      ", trained with Snug.\n\n- rank ", lora.rank, ", alpha ", lora.alpha, ", dropout ",
      lora.dropout, lora.rslora ? ", scaled by alpha / sqrt(rank)" : ", scaled by alpha / rank",
      "\n- ", contents.adapted.size(),
      " adapted modules: ", absl::StrJoin(program::TargetModules(lora, contents), ", "),
      OptionsText(lora, contents),
      "\n- weights in fp32; `metrics.jsonl` has the training's losses\n\n", LoadingText(options),
      "### Where it loads\n\n", CompatibilityTable(readers), "\n### Framework versions\n\n- PEFT ",
      program::kPeftVersion, "\n");
}

}  // namespace snug::checkpoint

#include "client/model_card.h"

#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/hub_id.h"
#include "client/json.h"
#include "client/serving.h"

namespace snug::client {
namespace {

const char* PipelineOf(v1::JobSpec::Task task) {
  switch (task) {
    case v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION:
      return "text-classification";
    case v1::JobSpec::TASK_TOKEN_CLASSIFICATION:
      return "token-classification";
    case v1::JobSpec::TASK_MASKED_LM:
      return "fill-mask";
    case v1::JobSpec::TASK_SEQ2SEQ_LM:
      return "text2text-generation";
    case v1::JobSpec::TASK_IMAGE_CLASSIFICATION:
      return "image-classification";
    default:
      return "text-generation";
  }
}

// The lines that the hub reads.
std::string FrontMatter(const v1::Job& job, const std::optional<std::string>& base) {
  const bool full = job.spec().method() == v1::JobSpec::METHOD_FULL;
  std::string text = "---\n";
  // Quoted: a name of digits alone would be a number.
  if (base) absl::StrAppend(&text, "base_model: \"", *base, "\"\n");
  absl::StrAppend(&text, "library_name: ", full ? "transformers" : "peft",
                  "\npipeline_tag: ", PipelineOf(job.spec().task()), "\ntags:\n");
  if (base)
    absl::StrAppend(&text, "- \"base_model:", full ? "finetune:" : "adapter:", *base, "\"\n");
  return absl::StrCat(text, full ? "" : "- lora\n", "- transformers\n---\n\n");
}

std::string Facts(const v1::Job& job) {
  const v1::Progress& progress = job.progress();
  std::string text;
  if (job.dataset().rows() > 0)
    absl::StrAppend(&text, "- trained on ", job.dataset().rows(), " rows, ",
                    job.dataset().trained_tokens(), " trained tokens\n");
  if (progress.global_step() > 0) absl::StrAppend(&text, "- ", progress.global_step(), " steps\n");
  if (job.output().loss() != 0.0)
    absl::StrAppend(&text, absl::StrFormat("- loss %.4f\n", job.output().loss()));
  return absl::StrCat(text, text.empty() ? "" : "\n");
}

}  // namespace

std::string ModelCard(const v1::Job& job, const std::string& repo) {
  const std::optional<std::string> base = HubIdOfFolder(job.spec().model());
  const std::string what =
      job.spec().method() == v1::JobSpec::METHOD_FULL ? "A fine-tuned model" : "A LoRA adapter";
  const std::string of =
      base ? absl::StrCat("of `", *base, "`") : "of a base that is not on the hub";
  return absl::StrCat(FrontMatter(job, base), "# ", repo, "\n\n", what, " ", of,
                      ", trained with Snug.\n\n", Facts(job), "```python\n",
                      absl::StrJoin(LoadingLines(job, base.value_or("BASE"), repo), "\n"),
                      "\n```\n");
}

absl::StatusOr<std::string> WithoutBasePath(const std::string& adapter_config) {
  Json config = Json::parse(adapter_config, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object())
    return absl::DataLossError("adapter_config.json, as the daemon sent it, is no JSON object");
  config["base_model_name_or_path"] = nullptr;
  return JsonText(config);
}

}  // namespace snug::client

#include "server/job/check_job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/data/sources.h"
#include "server/job/check_lora.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/inherit_adapter.h"
#include "server/job/random_id.h"
#include "server/job/transient.h"
#include "server/plan/planner.h"
#include "worker/program/augmentation.h"
#include "worker/program/eval_metrics.h"
#include "worker/program/files/adapter_config.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/added_tokens.h"
#include "worker/program/files/carried_files.h"
#include "worker/program/files/safetensors.h"
#include "worker/program/model_config.h"
#include "worker/program/parameter.h"
#include "worker/program/plan.h"
#include "worker/program/rope_config.h"

namespace snug::server {
namespace {

// What the values of a batch may come to over all layers: more than any device has, and so far from
// the end of 64 bits that every sum of bytes in a plan is exact.
constexpr int64_t kMaxBatchBytes = int64_t{1} << 53;

constexpr double kMlmProbability = 0.15;  // Of transformers' collator.

constexpr char kAddedTokens[] = "added_tokens";
constexpr char kAddedTokensField[] = "spec.added_tokens";

// Messages of the readers name file and field.
void AddStatus(std::vector<Violation>& found, const char* field, const char* reason,
               const absl::Status& status) {
  if (status.ok()) return;
  found.push_back({field, std::string(status.message()), reason, MayComeBack(status)});
}

// What the program's own messages begin with: "lora.rank_pattern: ...".
std::string FieldOf(const absl::Status& status) {
  const absl::string_view message = status.message();
  const bool named =
      absl::StartsWith(message, "lora.") || absl::StartsWith(message, "quantization:") ||
      absl::StartsWith(message, "reversible:") || absl::StartsWith(message, "task:") ||
      absl::StartsWith(message, "num_labels:") || absl::StartsWith(message, "problem_type:") ||
      absl::StartsWith(message, kAddedTokens);
  if (!named) return "spec.model";
  return absl::StrCat("spec.", message.substr(0, message.find(':')));
}

absl::Status CheckFile(const std::string& path, const Reach& reach) {
  ASSIGN_OR_RETURN(const struct stat status, StatFor(path, reach));
  if (!reach.roots && access(path.c_str(), R_OK) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (!S_ISREG(status.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  if (status.st_size == 0) return absl::InvalidArgumentError(absl::StrCat(path, " is empty"));
  return absl::OkStatus();
}

absl::Status CheckAdapterFiles(const v1::JobSpec& spec, const Origins& origins,
                               const Reach& reach) {
  ASSIGN_OR_RETURN(const AdapterOrigin adapter, AdapterOriginOf(spec, origins));
  if (adapter.dir.empty()) return absl::OkStatus();
  // What a job made lies in the daemon's own state.
  const bool of_job = NamesJob(spec.lora().init_adapter());
  return CheckFile(adapter.dir + "/adapter_config.json", of_job ? Reach{} : reach);
}

using SourceCheck = absl::Status (*)(Source source, const Reach& reach);

void CheckSources(const std::vector<Source>& sources, SourceCheck check, const Reach& reach,
                  std::vector<Violation>& found) {
  for (const Source& source : sources)
    AddStatus(found, absl::StrCat("spec.", source.field).c_str(), "BAD_DATASET",
              check(source, reach));
}

std::vector<Violation> CheckDatasets(const v1::JobSpec& spec, SourceCheck check,
                                     const Reach& reach) {
  std::vector<Violation> found;
  CheckSources(TrainSources(spec), check, reach, found);
  CheckSources(EvalSources(spec), check, reach, found);
  return found;
}

absl::Status CheckInitAdapter(const program::Program& program, const v1::LoraSpec& lora) {
  return program::ReadAdapterIndex(program, lora.init_adapter()).status();
}

// Each number of a batch has its own limit; this is of their product.
void CheckBatch(const program::Program& program, const v1::TrainingSpec& training,
                std::vector<Violation>& found) {
  int64_t per_token = 0;
  for (size_t block = 0; block < program.blocks.size(); ++block) {
    for (const program::Value& value : program.type_of(static_cast<int>(block)).values)
      per_token += value.width * program::SizeOf(value.dtype);
  }
  const int64_t rows = training.per_device_train_batch_size(), length = training.max_seq_length();
  if (rows * length <= kMaxBatchBytes / per_token) return;
  found.push_back({"spec.training.per_device_train_batch_size",
                   absl::StrCat(rows, " rows of max_seq_length ", length, ", ", per_token,
                                " bytes a token over all layers, are more than ",
                                FormatBytes(kMaxBatchBytes), ": lower either"),
                   "BAD_FIELD"});
}

// What nobody would see before the export, when all is trained.
void CheckExport(const CheckedJob& job, const program::Program& program,
                 std::vector<Violation>& found) {
  AddStatus(found, "spec.model", "BAD_MODEL", program::CheckCarriedFiles(job.model_dir));
  const program::TrainingMode mode = ModeOf(job.spec);
  if (!mode.lora) return;
  if (job.spec.merge() && program.config.quantization != program::Quantization::kNone)
    found.push_back({"spec.merge",
                     absl::StrCat(kNoMergeWithCodes, ", or give a model that is not quantised"),
                     "BAD_FIELD"});
  const absl::Status written = program::CheckAdapterExport(program, mode.adapter, job.model_dir);
  AddStatus(found, "spec.lora", "BAD_ADAPTER", written);
}

// What the task leaves open, once the model has told: as the worker and snug-prepare take it. PEFT
// trains a classification head whole, so it is named.
void FillTask(const program::ModelConfig& config, v1::JobSpec& spec) {
  if (config.has_source()) {
    spec.mutable_training()->set_packing(false);
    return spec.set_task(v1::JobSpec::TASK_SEQ2SEQ_LM);
  }
  if (config.task == program::Task::kMaskedLm) {
    if (!spec.has_mlm_probability()) spec.set_mlm_probability(kMlmProbability);
    return spec.set_task(v1::JobSpec::TASK_MASKED_LM);
  }
  if (!config.classifies()) return spec.set_task(v1::JobSpec::TASK_CAUSAL_LM);
  const bool of_texts = config.task == program::Task::kSequenceClassification;
  spec.set_task(config.of_images() ? v1::JobSpec::TASK_IMAGE_CLASSIFICATION
                : of_texts         ? v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION
                                   : v1::JobSpec::TASK_TOKEN_CLASSIFICATION);
  spec.set_num_labels(config.labels);
  if (of_texts) spec.set_problem_type(program::NameOf(config.problem));
  if (spec.method() != v1::JobSpec::METHOD_LORA) return;
  auto& saved = *spec.mutable_lora()->mutable_modules_to_save();
  const std::string head = program::HeadPathOf(config);
  if (std::find(saved.begin(), saved.end(), head) == saved.end()) *saved.Add() = head;
}

// What is of rows without a source.
void CheckSourceFields(const v1::JobSpec& spec, std::vector<Violation>& found) {
  const v1::TrainingSpec& training = spec.training();
  const std::pair<const char*, bool> others[] = {
      {"training.packing", training.packing()},
      {"training.group_by_length", training.group_by_length()},
      {"training.neftune_noise_alpha", training.neftune_noise_alpha() > 0.0},
      {"added_tokens", !spec.added_tokens().empty()}};
  for (const auto& [field, given] : others) {
    if (given)
      found.push_back(
          {absl::StrCat("spec.", field), "is not offered for task: seq2seq_lm", "BAD_FIELD"});
  }
  if (spec.has_completion_only_loss() && !spec.completion_only_loss())
    found.push_back({"spec.completion_only_loss",
                     "false, but of task: seq2seq_lm the target alone is trained", "BAD_FIELD"});
}

// What the best evaluation is told by is a metric of the task.
void CheckMetric(const program::ModelConfig& config, const v1::TrainingSpec& training,
                 std::vector<Violation>& found) {
  const bool generates = training.predict_with_generate() && config.has_source();
  const std::string& name = training.metric_for_best_model();
  const std::vector<std::string_view> metrics = program::EvalMetricsOf(config, generates);
  const std::string_view metric = program::WithoutEvalPrefix(name);
  if (name.empty() || std::find(metrics.begin(), metrics.end(), metric) != metrics.end()) return;
  const char* task = program::NameOf(config.task);
  found.push_back(
      {"spec.training.metric_for_best_model",
       absl::StrCat(name, " is no metric of ",
                    config.classifies()
                        ? absl::StrCat("this ", task, " (", program::NameOf(config.problem), " of ",
                                       config.labels, " outputs)")
                        : absl::StrCat("task: ", task),
                    ", which has ", program::EvalMetricNames(metrics)),
       "BAD_FIELD"});
}

// The head of the task, and what only one of the tasks takes.
bool CheckTask(program::ModelConfig& config, v1::JobSpec& spec, std::vector<Violation>& found) {
  const absl::Status chosen = program::ChooseTask(TaskOf(spec), config);
  if (!chosen.ok()) {
    AddStatus(found, FieldOf(chosen).c_str(), "BAD_FIELD", chosen);
    return false;
  }
  const auto of_tokens = [&](bool given, const char* field) {
    if (!given || config.task == program::Task::kCausalLm) return;
    found.push_back(
        {absl::StrCat("spec.", field),
         absl::StrCat("is of task: causal_lm; this job's is ", program::NameOf(config.task)),
         "BAD_FIELD"});
  };
  if (!config.has_source())
    of_tokens(!spec.training().sample_prompts().empty(), "training.sample_prompts");
  of_tokens(spec.mask_history(), "mask_history");
  of_tokens(!spec.chat_template().empty(), "chat_template");
  if (spec.has_mlm_probability() && config.task != program::Task::kMaskedLm)
    found.push_back(
        {"spec.mlm_probability",
         absl::StrCat("is of task: masked_lm; this job's is ", program::NameOf(config.task)),
         "BAD_FIELD"});
  if (spec.training().predict_with_generate() && !config.has_source())
    found.push_back(
        {"spec.training.predict_with_generate",
         absl::StrCat("is of task: seq2seq_lm; this job's is ", program::NameOf(config.task)),
         "BAD_FIELD"});
  if (config.has_source()) CheckSourceFields(spec, found);
  CheckMetric(config, spec.training(), found);
  if (config.has_targets() && spec.training().label_smoothing_factor() > 0.0)
    found.push_back({"spec.training.label_smoothing_factor",
                     absl::StrCat("spreads what one class has; problem_type: ",
                                  program::NameOf(config.problem), " has no such"),
                     "BAD_FIELD"});
  FillTask(config, spec);
  return true;
}

// Rows are images where the model reads them, and only there.
void CheckImageFormats(const program::ModelConfig& config, const v1::JobSpec& spec,
                       std::vector<Violation>& found) {
  const auto check = [&](v1::JobSpec::DatasetFormat format, const std::string& field) {
    const bool named = format != v1::JobSpec::DATASET_FORMAT_UNSPECIFIED;
    if (!named || (format == v1::JobSpec::DATASET_FORMAT_IMAGES) == config.of_images()) return;
    found.push_back({absl::StrCat("spec.", field),
                     config.of_images() ? "the model reads images: leave it out"
                                        : "images is of task: image_classification",
                     "BAD_FIELD"});
  };
  check(spec.dataset_format(), "dataset_format");
  for (int i = 0; i < spec.datasets_size(); ++i)
    check(spec.datasets(i).dataset_format(), absl::StrCat("datasets[", i, "].dataset_format"));
}

// An image has as many tokens as its model says, and there is nothing to pack.
void FillImages(const program::ModelConfig& config, v1::JobSpec& spec,
                std::vector<Violation>& found) {
  CheckImageFormats(config, spec, found);
  const bool augments = !spec.image_augmentation().empty();
  if (!config.of_images()) {
    if (!augments) return;
    found.push_back({"spec.image_augmentation",
                     absl::StrCat("is of task: image_classification; this job's is ",
                                  program::NameOf(config.task)),
                     "BAD_FIELD"});
    return;
  }
  if (!augments) spec.set_image_augmentation(program::NameOf(program::Augmentation::kBasic));
  v1::TrainingSpec& training = *spec.mutable_training();
  const int64_t tokens = config.tokens_of_image();
  const int32_t given = training.max_seq_length();
  if (training.has_max_seq_length() && given != tokens && given != kAuto)
    found.push_back(
        {"spec.training.max_seq_length",
         absl::StrCat(given, ", but an image of this model has ", tokens, " tokens: leave it out"),
         "BAD_FIELD"});
  training.set_max_seq_length(static_cast<int32_t>(tokens));
  if (training.has_packing() && training.packing())
    found.push_back(
        {"spec.training.packing", "is of texts; images are alike: leave it out", "BAD_FIELD"});
  training.set_packing(false);
  if (training.neftune_noise_alpha() > 0.0)
    found.push_back({"spec.training.neftune_noise_alpha",
                     "is of embeddings of tokens, not of images", "BAD_FIELD"});
}

// config.json first: without it nothing else can be checked.
absl::StatusOr<program::Program> CheckModel(CheckedJob& job, std::vector<Violation>& found) {
  absl::StatusOr<program::ModelConfig> config = program::ReadModelConfig(job.model_dir);
  if (!config.ok()) {
    AddStatus(found, "spec.model", "BAD_MODEL_CONFIG", config.status());
    return config.status();
  }
  const auto& tokens = job.spec.added_tokens();
  const absl::Status added =
      program::AddTokens(job.model_dir, {tokens.begin(), tokens.end()}, *config);
  AddStatus(found, kAddedTokensField, "BAD_ADDED_TOKENS", added);
  if (!added.ok()) return added;
  if (config->reversible && job.spec.reversible() == program::kNotReversible) {
    found.push_back({"spec.reversible", "the model was trained as native: leave it out, or native",
                     "BAD_FIELD"});
    return absl::InvalidArgumentError("the model is reversible");
  }
  if (!CheckTask(*config, job.spec, found))
    return absl::InvalidArgumentError("the model has no such head");
  FillImages(*config, job.spec, found);
  const int64_t limit = program::LongestSequence(*config);
  if (job.spec.training().max_seq_length() > limit)
    found.push_back(
        {"spec.training.max_seq_length",
         absl::StrCat(job.spec.training().max_seq_length(), " tokens are more than the model's ",
                      limit, " (max_position_embeddings",
                      limit > config->max_positions ? " under RoPE scaling)" : ")"),
         "BAD_FIELD"});
  FillDefaults(job.spec, limit);
  absl::StatusOr<program::Program> program = program::BuildProgram(*config, ModeOf(job.spec));
  if (!program.ok()) {
    const std::string field = FieldOf(program.status());
    const bool bad_field = field == "spec.quantization" || field == "spec.reversible";
    const char* reason = bad_field ? "BAD_FIELD" : "BAD_TARGET_MODULES";
    AddStatus(found, field.c_str(), field == kAddedTokensField ? "BAD_ADDED_TOKENS" : reason,
              program.status());
    return program.status();
  }
  CheckBatch(*program, job.spec.training(), found);
  if (!job.spec.memory().stash().empty())
    AddStatus(found, "spec.memory.stash", "BAD_STASH",
              program::PinnedPlan(*program, PatternsOf(job.spec, *config)).status());
  absl::StatusOr<program::TensorIndex> index =
      program::ReadModelIndex(job.model_dir, program->config);
  AddStatus(found, "spec.model", "BAD_WEIGHTS",
            index.ok() ? program::CheckBaseWeights(*program, *index) : index.status());
  CheckExport(job, *program, found);
  return program;
}

}  // namespace

program::TaskChoice TaskOf(const v1::JobSpec& spec) {
  program::TaskChoice choice = {
      .task = {}, .labels = spec.num_labels() > 0 ? spec.num_labels() : spec.label_names_size()};
  if (spec.task() == v1::JobSpec::TASK_CAUSAL_LM) choice.task = program::Task::kCausalLm;
  if (spec.task() == v1::JobSpec::TASK_SEQUENCE_CLASSIFICATION)
    choice.task = program::Task::kSequenceClassification;
  if (spec.task() == v1::JobSpec::TASK_TOKEN_CLASSIFICATION)
    choice.task = program::Task::kTokenClassification;
  if (spec.task() == v1::JobSpec::TASK_SEQ2SEQ_LM) choice.task = program::Task::kSeq2SeqLm;
  if (spec.task() == v1::JobSpec::TASK_MASKED_LM) choice.task = program::Task::kMaskedLm;
  if (spec.task() == v1::JobSpec::TASK_IMAGE_CLASSIFICATION)
    choice.task = program::Task::kImageClassification;
  choice.problem = program::ProblemOfName(spec.problem_type());
  return choice;
}

program::TrainingMode ModeOf(const v1::JobSpec& spec) {
  program::TrainingMode mode;
  mode.lora = spec.method() == v1::JobSpec::METHOD_LORA;
  mode.compute = spec.training().precision() == v1::TrainingSpec::PRECISION_BF16
                     ? program::DType::kBF16
                     : program::DType::kF32;
  if (spec.training().optim().ends_with("_8bit")) mode.moments = program::MomentKind::k8Bit;
  mode.release_gradients = spec.memory().gradients() == v1::MemorySpec::GRADIENTS_RELEASED;
  const std::string& dropout = spec.training().dropout();
  mode.dropout = dropout.empty() || dropout == program::kModelDropout;
  mode.label_smoothing = spec.training().label_smoothing_factor();
  mode.optimizer_on_host = spec.memory().optimizer() == v1::MemorySpec::OPTIMIZER_STATE_HOST;
  mode.reversible = spec.reversible() == program::kNativeStreams;
  if (!mode.lora) return mode;
  mode.adapter = LoraConfigOf(spec.lora());
  if (spec.quantization() == v1::JobSpec::QUANTIZATION_NF4)
    mode.quantization = program::Quantization::kNf4;
  if (spec.quantization() == v1::JobSpec::QUANTIZATION_INT8)
    mode.quantization = program::Quantization::kInt8;
  return mode;
}

std::vector<Violation> CheckDatasetFiles(const v1::JobSpec& spec, const Reach& reach) {
  return CheckDatasets(spec, CheckSource, reach);
}

absl::Status CheckForm(const v1::JobSpec& spec, const Origins& origins, InputFiles inputs,
                       const Reach& reach) {
  std::vector<Violation> found = CheckSpec(spec);
  if (!found.empty()) return InvalidRequest(found);
  const bool needed = inputs != InputFiles::kDone;
  const SourceCheck check = inputs == InputFiles::kNamed ? CheckNamed : CheckSource;
  if (needed) found = CheckDatasets(spec, check, reach);
  AddStatus(found, "spec.model", "BAD_MODEL", ModelOriginOf(spec, origins).status());
  if (needed)
    AddStatus(found, "spec.lora.init_adapter", "BAD_ADAPTER",
              CheckAdapterFiles(spec, origins, reach));
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

absl::StatusOr<std::string> CheckDataset(const v1::JobSpec& spec, const Origins& origins,
                                         const Reach& reach) {
  std::vector<Violation> found = CheckDatasetSpec(spec);
  if (!found.empty()) return InvalidRequest(found);
  CheckSources(TrainSources(spec), CheckSource, reach, found);
  absl::StatusOr<ModelOrigin> model = ModelOriginOf(spec, origins);
  AddStatus(found, "spec.model", "BAD_MODEL", model.status());
  if (!found.empty()) return InvalidRequest(found);
  return std::move(model)->dir;
}

absl::StatusOr<CheckedJob> CheckJob(const v1::JobSpec& spec,
                                    const absl::StatusOr<std::string>& model_dir,
                                    InputFiles inputs) {
  std::vector<Violation> found = CheckSpec(spec);
  if (!found.empty()) return InvalidRequest(found);
  CheckedJob job{.spec = spec, .model_dir = {}};
  const bool inherits = inputs == InputFiles::kNeeded && !spec.lora().init_adapter().empty();
  const absl::Status adapter =
      inherits ? InheritAdapter(*job.spec.mutable_lora()) : absl::OkStatus();
  AddStatus(found, "spec.lora.init_adapter", "BAD_ADAPTER", adapter);
  AddStatus(found, "spec.model", "BAD_MODEL", model_dir.status());
  if (!model_dir.ok()) return InvalidRequest(found);
  job.model_dir = *model_dir;
  absl::StatusOr<program::Program> program = CheckModel(job, found);
  if (program.ok() && inherits && adapter.ok())
    AddStatus(found, "spec.lora.init_adapter", "BAD_ADAPTER",
              CheckInitAdapter(*program, job.spec.lora()));
  if (!found.empty()) return InvalidRequest(found);
  job.program = std::make_shared<const program::Program>(*std::move(program));
  return job;
}

}  // namespace snug::server

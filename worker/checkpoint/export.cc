#include "worker/checkpoint/export.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/carried_files.h"
#include "worker/checkpoint/config_json.h"
#include "worker/checkpoint/manifest.h"
#include "worker/checkpoint/model_shards.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/checkpoint/reversible_loader.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/carried_files.h"
#include "worker/program/files/json_text.h"

namespace snug::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr char kTmp[] = ".tmp";

absl::Status WriteText(const std::string& folder, const std::string& name,
                       const std::string& text) {
  return WriteNewFile(absl::StrCat(folder, "/", name), text).status();
}

absl::Status CopyMetrics(const ExportOptions& options, const std::string& folder) {
  return CopyFile(options.metrics_file, folder + "/metrics.jsonl",
                  std::numeric_limits<int64_t>::max());
}

// Of the model that was trained.
absl::StatusOr<program::ModelConfig> ConfigOf(const ExportOptions& options) {
  ASSIGN_OR_RETURN(program::ModelConfig config, program::ReadModelConfig(options.model_dir));
  RETURN_IF_ERROR(program::ChooseTask(options.task, config));
  config.reversible = config.reversible || options.reversible;
  return config;
}

// PEFT saves a matrix of two names, trained whole, under both.
std::vector<TensorBytes> WithTiedHead(std::vector<TensorBytes> tensors) {
  const std::string embedding = absl::StrCat(program::kAdapterPrefix, program::kEmbeddingKey);
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const TensorBytes& tensor) {
    return tensor.key == embedding;
  });
  if (found == tensors.end()) return tensors;
  TensorBytes head = *found;
  head.key = absl::StrCat(program::kAdapterPrefix, program::kHeadKey);
  tensors.push_back(std::move(head));
  return tensors;
}

absl::Status FillAdapter(const std::string& folder, const ExportOptions& options,
                         const std::vector<TensorBytes>& adapter) {
  ASSIGN_OR_RETURN(const program::ModelConfig base, ConfigOf(options));
  ASSIGN_OR_RETURN(const program::AdapterContents contents, ContentsOf(adapter));
  ASSIGN_OR_RETURN(
      const std::string config,
      program::AdapterConfigText(options.lora, options.base_model_name, contents, base));
  const std::vector<ReaderReport> readers = ReadersOf(options.lora, contents, TypeInFiles(base));
  ASSIGN_OR_RETURN(const std::string readme, AdapterReadmeText(options, contents, readers));
  ASSIGN_OR_RETURN(const std::string compatibility, CompatibilityText(readers));
  const std::vector<TensorBytes> written = base.tied_embeddings ? WithTiedHead(adapter) : adapter;
  RETURN_IF_ERROR(WriteSafetensorsFile(folder + "/adapter_model.safetensors", written).status());
  RETURN_IF_ERROR(WriteText(folder, "adapter_config.json", config));
  RETURN_IF_ERROR(WriteText(folder, "README.md", readme));
  RETURN_IF_ERROR(WriteText(folder, "compatibility.json", compatibility + "\n"));
  RETURN_IF_ERROR(CopyTokenizerFiles(options.model_dir, options.data_dir, folder));
  return CopyMetrics(options, folder);
}

bool IsTied(const ordered_json& config) {
  const auto tied = config.find("tie_word_embeddings");
  return tied != config.end() && tied->is_boolean() && tied->get<bool>();
}

// One number type throughout, as its config.json can name but one.
absl::Status CheckOneDType(const std::vector<TensorBytes>& weights) {
  if (weights.empty()) return absl::InvalidArgumentError("a model without tensors");
  for (const TensorBytes& tensor : weights) {
    if (tensor.dtype == weights.front().dtype) continue;
    return absl::InvalidArgumentError(absl::StrCat(tensor.key, " is ", tensor.dtype, ", but ",
                                                   weights.front().key, " is ",
                                                   weights.front().dtype));
  }
  return absl::OkStatus();
}

// A model that was trained, and its config.json.
struct Trained {
  program::ModelConfig config;
  ordered_json json;
};

absl::StatusOr<Trained> TrainedOf(const ExportOptions& options,
                                  const std::vector<TensorBytes>& weights) {
  RETURN_IF_ERROR(CheckOneDType(weights));
  Trained trained;
  ASSIGN_OR_RETURN(trained.config, ConfigOf(options));
  ConfigChanges changes = ChangesOf(trained.config, options.label_names);
  changes.dtype = weights.front().dtype;
  changes.vocabulary = options.vocabulary;
  ASSIGN_OR_RETURN(trained.json, ConfigOfExport(options.model_dir, changes));
  return trained;
}

// All of a model's folder but its weights.
absl::Status WriteBesideWeights(const std::string& folder, const ExportOptions& options,
                                const Trained& trained) {
  ASSIGN_OR_RETURN(const std::string config, program::JsonText(trained.json, program::kIndent));
  RETURN_IF_ERROR(WriteText(folder, "config.json", config + "\n"));
  if (trained.config.reversible) RETURN_IF_ERROR(WriteReversibleLoader(trained.config, folder));
  RETURN_IF_ERROR(CopyIfPresent(options.model_dir, folder, program::kGenerationConfig));
  return CopyTokenizerFiles(options.model_dir, options.data_dir, folder);
}

absl::Status FillModel(const std::string& folder, const ExportOptions& options,
                       const std::vector<TensorBytes>& weights) {
  ASSIGN_OR_RETURN(const Trained trained, TrainedOf(options, weights));
  std::vector<TensorBytes> written;
  for (const TensorBytes& tensor : weights) {
    if (tensor.key != program::kHeadKey || !IsTied(trained.json)) written.push_back(tensor);
  }
  RETURN_IF_ERROR(WriteSafetensorsFile(absl::StrCat(folder, "/", kModelFile), written).status());
  RETURN_IF_ERROR(WriteBesideWeights(folder, options, trained));
  return CopyMetrics(options, folder);
}

using Fill = absl::Status (*)(const std::string&, const ExportOptions&,
                              const std::vector<TensorBytes>&);

// What fails leaves no folder: it would only fill the disk.
absl::Status Export(const std::string& output, const ExportOptions& options,
                    const std::vector<TensorBytes>& tensors, Fill fill) {
  const std::string folder = output + kTmp;
  RETURN_IF_ERROR(MakeFreshFolder(folder));
  absl::Status status = fill(folder, options, tensors);
  if (!status.ok()) RemoveFolder(folder).IgnoreError();
  return status;
}

}  // namespace

absl::Status ExportAdapter(const std::string& output, const ExportOptions& options,
                           const std::vector<TensorBytes>& adapter) {
  return Export(output, options, adapter, FillAdapter);
}

absl::Status ExportModel(const std::string& output, const ExportOptions& options,
                         const std::vector<TensorBytes>& weights) {
  return Export(output, options, weights, FillModel);
}

absl::Status WriteModelFiles(const std::string& folder, const ExportOptions& options,
                             const std::vector<TensorBytes>& weights) {
  ASSIGN_OR_RETURN(const Trained trained, TrainedOf(options, weights));
  RETURN_IF_ERROR(WriteBesideWeights(folder, options, trained));
  return WriteModelIndex(folder, weights);
}

// Every file in it was synced when it was written.
absl::Status Publish(const std::string& output) { return PublishFolder(output + kTmp, output); }

}  // namespace snug::checkpoint

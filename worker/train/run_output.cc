#include "worker/train/run_output.h"

#include <iostream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/checkpoint/reversible_loader.h"
#include "worker/program/files/safetensors.h"
#include "worker/train/merged_export.h"
#include "worker/train/tensors.h"

namespace snug::train {

checkpoint::ExportOptions OptionsOfExport(const Run& run) {
  const program::ModelConfig& config = run.trainer->program().config;
  return {.model_dir = run.attempt.model_dir,
          .data_dir = run.attempt.train_data,
          .base_model_name = run.attempt.base_model_name,
          .lora = run.attempt.mode.adapter,
          .vocabulary = config.adds_tokens() ? config.vocabulary : 0,
          .reversible = config.reversible,
          .task = run.attempt.task,
          .label_names = run.trainer->dataset().label_names(),
          .metrics_file = run.metrics_file(),
          .display_name = ""};
}

absl::Status RunOutput::Make() {
  ASSIGN_OR_RETURN(const double loss, evaluations_.LossToExport());
  RETURN_IF_ERROR(Export());
  RETURN_IF_ERROR(checkpoint::VerifyExport(run_.unpublished_output(), run_.trainer->program()));
  RETURN_IF_ERROR(ReadBack());
  ASSIGN_OR_RETURN(verified_loss_, evaluations_.LossNow());
  if (verified_loss_ != loss)
    return absl::DataLossError(absl::StrCat("the exported files give the loss ", verified_loss_,
                                            ", the trained weights ", loss));
  if (!run_.attempt.prompts_file.empty())
    RETURN_IF_ERROR(CarrySamples(run_.samples_file(), run_.unpublished_output()));
  if (run_.attempt.training.tensorboard)
    RETURN_IF_ERROR(checkpoint::CopyFile(run_.events_file(),
                                         absl::StrCat(run_.unpublished_output(), "/", kEventsName),
                                         std::numeric_limits<int64_t>::max()));
  std::cerr << "exported; read back, it gives the loss " << verified_loss_ << std::endl;
  if (run_.attempt.merge) RETURN_IF_ERROR(MergeIfFinite());
  return checkpoint::Publish(run_.output());
}

// The adapter is verified by now: that the base's number type cannot hold its sum with the base
// costs the merged model alone.
absl::Status RunOutput::MergeIfFinite() {
  const absl::Status merged = Merge();
  if (!absl::IsOutOfRange(merged)) return merged;
  merge_error_ = std::string(merged.message());
  merged_loss_.reset();
  std::cerr << "not merged: " << merge_error_ << std::endl;
  return checkpoint::RemoveFolder(run_.unpublished_output() + "/merged");
}

// The merged model is then evaluated in place of the trainer, which takes less than that did.
absl::Status RunOutput::Merge() {
  const std::string folder = run_.unpublished_output() + "/merged";
  RETURN_IF_ERROR(ExportMerged(folder, {.model_dir = run_.attempt.model_dir,
                                        .data_dir = run_.attempt.train_data,
                                        .label_names = run_.trainer->dataset().label_names(),
                                        .program = &run_.trainer->program(),
                                        .parameters = &run_.trainer->parameters(),
                                        .arena = &run_.trainer->arena()}));
  const int64_t step = run_.trainer->global_step(), tokens = run_.trainer->num_tokens();
  const DataCursor cursor = run_.trainer->cursor();
  peak_before_merge_ = run_.trainer->memory().peak_bytes;
  run_.trainer.reset();
  run_.device.allocator().ResetPeak();
  ASSIGN_OR_RETURN(const AttemptOptions merged, EvaluationOf(folder, run_.attempt));
  ASSIGN_OR_RETURN(run_.trainer, Trainer::Create(merged, run_.device));
  run_.trainer->ResumeAt(step, cursor, tokens);
  ASSIGN_OR_RETURN(merged_loss_, evaluations_.LossNow());
  std::cerr << "merged; it gives the loss " << *merged_loss_ << std::endl;
  return absl::OkStatus();
}

absl::Status RunOutput::Export() {
  const checkpoint::ExportOptions options = OptionsOfExport(run_);
  const std::vector<checkpoint::TensorBytes> weights = WeightsOf(*run_.trainer, Digits::kComputed);
  const program::TrainingMode& mode = run_.attempt.mode;
  if (!mode.lora) return checkpoint::ExportModel(run_.output(), options, weights);
  ASSIGN_OR_RETURN(const program::AdapterContents contents, checkpoint::ContentsOf(weights));
  readers_ = checkpoint::ReadersOf(mode.adapter, contents,
                                   checkpoint::TypeInFiles(run_.trainer->program().config));
  return checkpoint::ExportAdapter(run_.output(), options, weights);
}

// The trained parameters, forgotten and read again from the files that the user will get.
absl::Status RunOutput::ReadBack() {
  const std::string folder = run_.unpublished_output();
  ASSIGN_OR_RETURN(const program::TensorIndex index,
                   run_.attempt.mode.lora
                       ? program::ReadSafetensorsHeader(folder + "/adapter_model.safetensors")
                       : program::ReadModelIndex(folder));
  return run_.trainer->parameters().ReadTrained(run_.trainer->program(), index);
}

void RunOutput::Tell(AttemptResult& result) const {
  result.output_dir = run_.output();
  result.verified_loss = verified_loss_;
  result.merged_loss = merged_loss_;
  result.merge_error = merge_error_;
  result.readers = readers_;
}

}  // namespace snug::train

// What a finished job gives its user: a PEFT adapter folder or a Hugging Face model folder, exact
// to the byte that readers depend on.
#ifndef WORKER_CHECKPOINT_EXPORT_H_
#define WORKER_CHECKPOINT_EXPORT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "worker/checkpoint/tensor_bytes.h"
#include "worker/program/program.h"

namespace snug::checkpoint {

struct ExportOptions {
  std::string model_dir;  // The base: config.json, generation_config.json and tokenizer files are
                          // carried along.
  std::string data_dir;   // The prepared dataset: what it has of these files replaces the base's.
  std::string base_model_name;           // For adapter_config.json.
  program::LoraConfig lora;              // Adapter export only.
  int64_t vocabulary = 0;                // Where tokens were added: with them. 0: the base's.
  bool reversible = false;               // Trained as two streams, whatever the base's files say.
  program::TaskChoice task;              // What was trained, where it is not what the base is for.
  std::vector<std::string> label_names;  // Of a classification, by id; empty: nobody names them.
  std::string metrics_file;              // Copied to metrics.jsonl.
  std::string display_name;              // For README.md of an adapter; may be empty.
};

// Both write `output`.tmp, in place of what a killed process left there, and leave it: the caller
// verifies it (VerifyExport, then a forward on it) and calls Publish.
absl::Status ExportAdapter(const std::string& output, const ExportOptions& options,
                           const std::vector<TensorBytes>& adapter);
absl::Status ExportModel(const std::string& output, const ExportOptions& options,
                         const std::vector<TensorBytes>& weights);

// What ExportModel writes beside the weights, but for the metrics; `weights` are those that the
// folder gets in model.safetensors. An index names that file: vLLM would otherwise take every file
// of tensors in the folder for weights.
absl::Status WriteModelFiles(const std::string& folder, const ExportOptions& options,
                             const std::vector<TensorBytes>& weights);

// The exported files hold exactly the program's adapter or base parameters, with their shapes, all
// finite.
absl::Status VerifyExport(const std::string& folder, const program::Program& program);

// Syncs and renames `output`.tmp to `output`.
absl::Status Publish(const std::string& output);

}  // namespace snug::checkpoint

#endif  // WORKER_CHECKPOINT_EXPORT_H_

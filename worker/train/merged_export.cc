#include "worker/train/merged_export.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/carried_files.h"
#include "worker/checkpoint/config_json.h"
#include "worker/checkpoint/model_shards.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/execute/tensor_view.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/json_text.h"
#include "worker/program/safetensors.h"

namespace snug::train {
namespace {

using checkpoint::TensorBytes;
using checkpoint::TensorSink;
using execute::View;
using program::Parameter;
using program::TensorEntry;

constexpr int64_t kF32Bytes = 4;
constexpr int64_t kMaxConfigBytes = 1 << 20;

// What is added to a matrix of the base.
struct Delta {
  View down, up;  // A (r, in), B (out, r), fp32.
  double scale = 0.0;
  bool of_embedding = false;  // A (r, V), B (C, r): the transpose of B A is added.

  // `sum` has `sum.size(0)` rows of the matrix, from `first` on.
  void AddTo(at::Tensor& sum, int64_t first) const {
    const at::Tensor a = execute::Matrix(down), b = execute::Matrix(up);
    const at::Tensor left = (of_embedding ? a.t() : b).narrow(0, first, sum.size(0));
    at::addmm_out(sum, sum, left, of_embedding ? b.t() : a, 1.0, scale);
  }
};

at::ScalarType ScalarTypeOf(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  return dtype == "BF16" ? at::kBFloat16 : at::kHalf;  // CheckWeights let no other pass.
}

class Merger {
 public:
  Merger(const MergeRequest& request, program::TensorIndex base)
      : request_(request), base_(std::move(base)) {
    for (size_t i = 0; i < parameters().size(); ++i) position_[parameters()[i].key] = i;
    FindDeltas();
  }

  // Those of the base, with their number types.
  std::vector<TensorBytes> Tensors() const {
    std::vector<TensorBytes> tensors;
    for (const Parameter& parameter : parameters()) {
      if (parameter.adapter) continue;
      const std::string& dtype = base_.at(parameter.key).dtype;
      const auto element = static_cast<int64_t>(at::elementSize(ScalarTypeOf(dtype)));
      tensors.push_back(
          {parameter.key, dtype, parameter.shape, nullptr, parameter.elements() * element});
    }
    return tensors;
  }

  absl::Status Write(const TensorBytes& tensor, const TensorSink& sink) const {
    const TensorEntry& entry = base_.at(tensor.key);
    const auto element = static_cast<int64_t>(at::elementSize(ScalarTypeOf(entry.dtype)));
    const int64_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
    const int64_t width = tensor.bytes / element / std::max<int64_t>(rows, 1);
    const int64_t at_once = request_.memory_bytes / (width * (kF32Bytes + kF32Bytes));
    if (at_once < 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("merging ", tensor.key, " needs ", width * 2 * kF32Bytes,
                       " bytes to work in, there are ", request_.memory_bytes));
    }
    ASSIGN_OR_RETURN(const auto file,
                     checkpoint::OpenFile::Open(entry.file, checkpoint::Links::kFollow));
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t count = std::min(at_once, rows - first), bytes = count * width * element;
      char* raw = request_.memory + at_once * width * kF32Bytes;
      if (!IsSaved(tensor.key)) {
        RETURN_IF_ERROR(file.Read(entry.begin + first * width * element, bytes, raw));
      }
      RETURN_IF_ERROR(Merge(tensor.key, {first, count, width}, raw));
      RETURN_IF_ERROR(sink(raw, bytes));
    }
    return absl::OkStatus();
  }

 private:
  struct Rows {
    int64_t first, count, width;
  };

  const std::vector<Parameter>& parameters() const { return request_.program->parameters; }

  // By the key of the matrix that each is added to.
  void FindDeltas() {
    const program::Program& program = *request_.program;
    for (const program::Block& block : program.blocks) {
      for (const program::Op& op : program.types[static_cast<size_t>(block.type)].ops) {
        if (op.attributes.rank == 0) continue;  // Not adapted.
        const bool embedding = op.code == program::OpCode::kLoraEmbedding;
        const std::string key = embedding ? program::kEmbeddingKey : KeyOf(block, op);
        const std::string path = key.substr(0, key.rfind('.'));
        deltas_[key] = {.down = Exact(program::AdapterKey(path, /*up=*/false)),
                        .up = Exact(program::AdapterKey(path, /*up=*/true)),
                        .scale = op.attributes.scale,
                        .of_embedding = embedding};
      }
    }
  }

  // Trained whole: of the base's rows, of which there may be fewer, nothing is left.
  bool IsSaved(const std::string& key) const { return parameters()[position_.at(key)].saved; }

  // Of an op's first parameter.
  const std::string& KeyOf(const program::Block& block, const program::Op& op) const {
    const auto slot = static_cast<size_t>(op.parameters[0]);
    return parameters()[static_cast<size_t>(block.parameters[slot])].key;
  }

  const View& Exact(const std::string& key) const {
    return request_.parameters->exact(position_.at(key));
  }

  // `raw`: those rows of the base, which become the merged ones; of what is saved, whatever.
  absl::Status Merge(const std::string& key, const Rows& rows, char* raw) const {
    const auto delta = deltas_.find(key);
    const bool saved = IsSaved(key);
    if (delta == deltas_.end() && !saved) return absl::OkStatus();
    return execute::CatchTorch([&] {
      const c10::InferenceMode no_autograd;
      at::Tensor base =
          at::from_blob(raw, {rows.count, rows.width}, ScalarTypeOf(base_.at(key).dtype));
      if (saved) {
        base.copy_(execute::Matrix(Exact(key).Rows(rows.first, rows.count)));
        return;
      }
      at::Tensor sum = at::from_blob(request_.memory, {rows.count, rows.width}, at::kFloat);
      sum.copy_(base);
      delta->second.AddTo(sum, rows.first);
      base.copy_(sum);
    });
  }

  const MergeRequest& request_;
  const program::TensorIndex base_;
  std::map<std::string, size_t> position_;  // Of parameters, by key.
  std::map<std::string, Delta> deltas_;
};

absl::Status WriteConfig(const std::string& folder, const MergeRequest& request) {
  const std::string from = request.model_dir + "/config.json", to = folder + "/config.json";
  const program::ModelConfig& config = request.program->config;
  if (!config.adds_tokens()) return checkpoint::CopyFile(from, to, kMaxConfigBytes);
  ASSIGN_OR_RETURN(const auto grown, checkpoint::ConfigOfExport(request.model_dir,
                                                                {.vocabulary = config.vocabulary}));
  ASSIGN_OR_RETURN(const std::string text, program::JsonText(grown, program::kIndent));
  return checkpoint::WriteNewFile(to, text + "\n").status();
}

}  // namespace

absl::Status ExportMerged(const std::string& folder, const MergeRequest& request) {
  ASSIGN_OR_RETURN(program::TensorIndex base, program::ReadModelIndex(request.model_dir));
  RETURN_IF_ERROR(program::CheckBaseWeights(*request.program, base));
  RETURN_IF_ERROR(checkpoint::MakeFreshFolder(folder));
  const Merger merger(request, std::move(base));
  const auto source = [&](const TensorBytes& tensor, const TensorSink& sink) {
    return merger.Write(tensor, sink);
  };
  RETURN_IF_ERROR(checkpoint::WriteModelShards(
      folder, merger.Tensors(), source,
      request.max_shard_bytes > 0 ? request.max_shard_bytes : checkpoint::kMaxShardBytes));
  RETURN_IF_ERROR(WriteConfig(folder, request));
  RETURN_IF_ERROR(checkpoint::CopyIfPresent(request.model_dir, folder, "generation_config.json"));
  RETURN_IF_ERROR(checkpoint::CopyTokenizerFiles(request.model_dir, request.data_dir, folder));
  return checkpoint::SyncFolder(folder);
}

absl::StatusOr<AttemptOptions> EvaluationOf(const std::string& folder,
                                            const AttemptOptions& attempt) {
  AttemptOptions merged = attempt;
  merged.model_dir = folder;
  merged.added_tokens.clear();  // It has them.
  merged.init_adapter.clear();
  merged.prompts_file.clear();
  merged.mode.adapter = {};
  merged.mode.adapter.target_modules.clear();
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(folder));
  ASSIGN_OR_RETURN(const program::Program plain, program::BuildProgram(config, merged.mode));
  merged.plan = program::RecomputePlan(plain, 0);
  return merged;
}

}  // namespace snug::train

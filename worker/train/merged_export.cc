#include "worker/train/merged_export.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/carried_files.h"
#include "worker/checkpoint/config_json.h"
#include "worker/checkpoint/model_shards.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/checkpoint/reversible_loader.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/files/json_text.h"
#include "worker/program/files/safetensors.h"

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
};

at::Tensor TensorOf(const View& fp32) {
  return at::from_blob(fp32.data, {fp32.rows, fp32.width}, at::kFloat);
}

// Some columns of a matrix of fp32 where the host reads them: where they lie, or copied.
class HostColumns {
 public:
  HostColumns(execute::Device& device, const View& all, int64_t first, int64_t count)
      : device_(device), all_(all), first_(first), count_(count) {}
  HostColumns(execute::Device& device, const View& all) : HostColumns(device, all, 0, all.width) {}

  absl::Status Copy() {
    if (device_.host_reads_memory()) return absl::OkStatus();
    copy_.resize(static_cast<size_t>(all_.rows * count_));
    if (count_ == all_.width)
      return execute::CopyMemory(device_, all_.data, all_.bytes(), copy_.data());
    for (int64_t row = 0; row < all_.rows; ++row) {
      const float* from = all_.as<float>() + row * all_.width + first_;
      RETURN_IF_ERROR(
          execute::CopyMemory(device_, from, count_ * kF32Bytes, copy_.data() + row * count_));
    }
    return absl::OkStatus();
  }
  at::Tensor tensor() {
    if (copy_.empty()) return TensorOf(all_).narrow(1, first_, count_);
    return at::from_blob(copy_.data(), {all_.rows, count_}, at::kFloat);
  }

 private:
  execute::Device& device_;
  const View all_;
  const int64_t first_, count_;
  std::vector<float> copy_;
};

// Where rows are merged: the arena, or the host's own memory where it does not read that.
class Room {
 public:
  explicit Room(const execute::ArenaMemory& arena) : data_(arena.data()), bytes_(arena.bytes()) {
    if (arena.device().host_reads_memory()) return;
    own_ = std::make_unique_for_overwrite<char[]>(static_cast<size_t>(kMergeRoomBytes));
    data_ = own_.get();
    bytes_ = kMergeRoomBytes;
  }
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<char[]> own_;
  char* data_;
  int64_t bytes_;
};

at::ScalarType ScalarTypeOf(const std::string& dtype) {
  if (dtype == "F32") return at::kFloat;
  return dtype == "BF16" ? at::kBFloat16 : at::kHalf;  // CheckWeights let no other pass.
}

class Merger {
 public:
  Merger(const MergeRequest& request, program::TensorIndex base)
      : request_(request), room_(*request.arena), base_(std::move(base)) {
    for (size_t i = 0; i < parameters().size(); ++i) position_[parameters()[i].key] = i;
    FindDeltas();
  }

  // Those of the base, with their number types.
  std::vector<TensorBytes> Tensors() const {
    std::vector<TensorBytes> tensors;
    for (const Parameter& parameter : parameters()) {
      if (parameter.adapter) continue;
      const std::string& dtype = DTypeOf(parameter.key);
      const auto element = static_cast<int64_t>(at::elementSize(ScalarTypeOf(dtype)));
      tensors.push_back(
          {parameter.key, dtype, parameter.shape, nullptr, parameter.elements() * element});
    }
    return tensors;
  }

  absl::Status Write(const TensorBytes& tensor, const TensorSink& sink) const {
    const auto element = static_cast<int64_t>(at::elementSize(ScalarTypeOf(tensor.dtype)));
    const int64_t rows = tensor.shape.size() > 1 ? tensor.shape[0] : 1;
    const int64_t width = tensor.bytes / element / std::max<int64_t>(rows, 1);
    const int64_t at_once = room_.bytes() / (width * (kF32Bytes + kF32Bytes));
    if (at_once < 1) {
      return absl::ResourceExhaustedError(
          absl::StrCat("merging ", tensor.key, " needs ", width * 2 * kF32Bytes,
                       " bytes to work in, there are ", room_.bytes()));
    }
    std::optional<checkpoint::OpenFile> file;  // None: nothing of the base's is left.
    if (!IsSaved(tensor.key)) {
      ASSIGN_OR_RETURN(auto opened, checkpoint::OpenFile::Open(base_.at(tensor.key).file,
                                                               checkpoint::Links::kFollow));
      file.emplace(std::move(opened));
    }
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t count = std::min(at_once, rows - first), bytes = count * width * element;
      char* raw = room_.data() + at_once * width * kF32Bytes;
      if (file.has_value()) {
        const int64_t begin = base_.at(tensor.key).begin;
        RETURN_IF_ERROR(file->Read(begin + first * width * element, bytes, raw));
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

  execute::Device& device() const { return request_.arena->device(); }
  const std::vector<Parameter>& parameters() const { return request_.program->parameters; }

  // Of a new head, which the base has not, that of the first parameter that it has.
  const std::string& DTypeOf(const std::string& key) const {
    auto found = base_.find(key);
    for (auto parameter = parameters().begin(); found == base_.end(); ++parameter)
      found = base_.find(parameter->key);
    return found->second.dtype;
  }

  // By the key of the matrix that each is added to.
  void FindDeltas() {
    const program::Program& program = *request_.program;
    for (const program::Block& block : program.blocks) {
      for (const program::Op& op : program.types[static_cast<size_t>(block.type)].ops) {
        if (op.attributes.rank == 0) continue;  // Not adapted.
        const bool embedding = op.code == program::OpCode::kLoraEmbedding;
        const std::string key = embedding ? program::kEmbeddingKey : KeyOf(block, op);
        const std::string path = embedding ? program::kEmbeddingPath : PathOf(block, op);
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

  // Of its module, as transformers' class has it.
  std::string PathOf(const program::Block& block, const program::Op& op) const {
    const std::string& key = ModuleKeyOf(parameters()[position_.at(KeyOf(block, op))]);
    return key.substr(0, key.rfind('.'));
  }

  const View& Exact(const std::string& key) const {
    return request_.parameters->exact(position_.at(key));
  }

  // `raw`: those rows of the base, which become the merged ones; of what is saved, whatever.
  absl::Status Merge(const std::string& key, const Rows& rows, char* raw) const {
    const at::Tensor base =
        at::from_blob(raw, {rows.count, rows.width}, ScalarTypeOf(DTypeOf(key)));
    if (IsSaved(key)) {
      const View trained = Exact(key).Rows(rows.first, rows.count);
      return execute::ReadRows(device(), trained, [&](const View& part, int64_t first) {
        const c10::InferenceMode no_autograd;
        base.narrow(0, first, part.rows).copy_(TensorOf(part));
      });
    }
    const auto delta = deltas_.find(key);
    return delta == deltas_.end() ? absl::OkStatus() : Add(delta->second, rows, base);
  }

  absl::Status Add(const Delta& delta, const Rows& rows, const at::Tensor& base) const {
    const View& left = delta.of_embedding ? delta.down : delta.up;
    HostColumns of_rows = delta.of_embedding
                              ? HostColumns(device(), left, rows.first, rows.count)
                              : HostColumns(device(), left.Rows(rows.first, rows.count));
    HostColumns all(device(), delta.of_embedding ? delta.up : delta.down);
    RETURN_IF_ERROR(of_rows.Copy());
    RETURN_IF_ERROR(all.Copy());
    return execute::CatchTorch([&] {
      const c10::InferenceMode no_autograd;
      at::Tensor sum = at::from_blob(room_.data(), {rows.count, rows.width}, at::kFloat);
      sum.copy_(base);
      const at::Tensor a = of_rows.tensor(), b = all.tensor();
      const bool turned = delta.of_embedding;
      at::addmm_out(sum, sum, turned ? a.t() : a, turned ? b.t() : b, 1.0, delta.scale);
      base.copy_(sum);
    });
  }

  const MergeRequest& request_;
  const Room room_;
  const program::TensorIndex base_;
  std::map<std::string, size_t> position_;  // Of parameters, by key.
  std::map<std::string, Delta> deltas_;
};

absl::Status WriteConfig(const std::string& folder, const MergeRequest& request) {
  const std::string from = request.model_dir + "/config.json", to = folder + "/config.json";
  const program::ModelConfig& config = request.program->config;
  if (!config.adds_tokens() && !config.classifies())
    return checkpoint::CopyFile(from, to, kMaxConfigBytes);
  ASSIGN_OR_RETURN(const auto changed,
                   checkpoint::ConfigOfExport(request.model_dir,
                                              checkpoint::ChangesOf(config, request.label_names)));
  ASSIGN_OR_RETURN(const std::string text, program::JsonText(changed, program::kIndent));
  return checkpoint::WriteNewFile(to, text + "\n").status();
}

}  // namespace

absl::Status ExportMerged(const std::string& folder, const MergeRequest& request) {
  ASSIGN_OR_RETURN(program::TensorIndex base,
                   program::ReadModelIndex(request.model_dir, request.program->config));
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
  const program::ModelConfig& config = request.program->config;
  if (config.reversible) RETURN_IF_ERROR(checkpoint::WriteReversibleLoader(config, folder));
  RETURN_IF_ERROR(checkpoint::CopyIfPresent(request.model_dir, folder, "generation_config.json"));
  RETURN_IF_ERROR(checkpoint::CopyTokenizerFiles(request.model_dir, request.data_dir, folder));
  return checkpoint::SyncFolder(folder);
}

absl::StatusOr<AttemptOptions> EvaluationOf(const std::string& folder,
                                            const AttemptOptions& attempt) {
  AttemptOptions merged = attempt;
  merged.model_dir = folder;
  merged.added_tokens.clear();  // It has them,
  merged.task = {};             // and its head.
  merged.init_adapter.clear();
  merged.prompts_file.clear();
  merged.promised.reset();  // It is another program.
  merged.mode.adapter = {};
  merged.mode.adapter.target_modules.clear();
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(folder));
  ASSIGN_OR_RETURN(const program::Program plain, program::BuildProgram(config, merged.mode));
  merged.plan = program::NamedPlanOf(plain, program::RecomputePlan(plain, 0));
  return merged;
}

}  // namespace snug::train

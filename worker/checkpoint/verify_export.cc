// An exported folder, read again as a user's program would read it: by what lies on the disk alone.
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/finite.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/adapter_export.h"
#include "worker/program/files/safetensors.h"

namespace snug::checkpoint {
namespace {

using program::TensorEntry;
using program::TensorIndex;

absl::Status CheckValues(const OpenFile& file, const std::string& key, const TensorEntry& entry,
                         const std::string& dtype) {
  if (entry.dtype != dtype) {
    return absl::FailedPreconditionError(
        absl::StrCat(entry.file, ": ", key, " is ", entry.dtype, ", exported are ", dtype));
  }
  int64_t before = 0;  // Elements of earlier pieces.
  return file.ForEachPiece(entry.begin, entry.bytes, [&](std::string_view piece) -> absl::Status {
    const auto bytes = static_cast<int64_t>(piece.size());
    const int64_t index = FirstNonFinite(dtype, piece.data(), bytes);
    if (index >= 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry.file, ": ", key, ": element ", before + index, " is NaN or infinite"));
    }
    before += bytes / (dtype == "F32" ? 4 : 2);
    return absl::OkStatus();
  });
}

// All tensors of the one file, and `expected` of them: the comparison by name lets some buffers
// pass.
using DTypes = std::map<std::string, std::string>;  // By key.

absl::Status CheckTensors(const std::string& path, const TensorIndex& index,
                          const DTypes& expected) {
  if (index.size() != expected.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", index.size(), " tensors, not ", expected.size()));
  }
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kRefuse));
  for (const auto& [key, dtype] : expected) {
    const auto entry = index.find(key);
    if (entry == index.end()) {
      return absl::FailedPreconditionError(absl::StrCat(path, " has no ", key));
    }
    RETURN_IF_ERROR(CheckValues(file, key, entry->second, dtype));
  }
  return absl::OkStatus();
}

absl::Status VerifyAdapter(const std::string& folder, const program::Program& program,
                           DTypes expected) {
  const std::string path = folder + "/adapter_model.safetensors";
  ASSIGN_OR_RETURN(const TensorIndex index, program::ReadSafetensorsHeader(path));
  RETURN_IF_ERROR(program::CheckAdapter(program, index));
  const auto tied = expected.find(absl::StrCat(program::kAdapterPrefix, program::kEmbeddingKey));
  if (program.config.tied_embeddings && tied != expected.end()) {
    expected[absl::StrCat(program::kAdapterPrefix, program::kHeadKey)] = tied->second;
  }
  RETURN_IF_ERROR(CheckTensors(path, index, expected));
  const std::string config_path = folder + "/adapter_config.json";
  ASSIGN_OR_RETURN(const program::AdapterConfig config, program::ReadAdapterConfig(config_path));
  return program::CheckAdapterConfig(config, config_path, program);
}

absl::Status VerifyModel(const std::string& folder, const program::Program& program,
                         const DTypes& expected) {
  const std::string path = folder + "/model.safetensors";
  ASSIGN_OR_RETURN(const TensorIndex index, program::ReadSafetensorsHeader(path));
  RETURN_IF_ERROR(program::CheckWeights(program, index));
  RETURN_IF_ERROR(CheckTensors(path, index, expected));
  // As one who has nothing but the folder: its own config.json asks for these very weights.
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(folder));
  ASSIGN_OR_RETURN(const program::Program loaded, program::BuildProgram(config, {}));
  return program::CheckWeights(loaded, index);
}

}  // namespace

absl::Status VerifyExport(const std::string& folder, const program::Program& program) {
  DTypes adapter, model;
  for (const program::Parameter& parameter : program.parameters) {
    const std::string dtype = parameter.dtype == program::DType::kF32 ? "F32" : "BF16";
    if (InAdapterFile(parameter)) adapter[AdapterFileKey(parameter)] = dtype;
    model[parameter.key] = dtype;
  }
  return adapter.empty() ? VerifyModel(folder, program, model)
                         : VerifyAdapter(folder, program, std::move(adapter));
}

}  // namespace snug::checkpoint

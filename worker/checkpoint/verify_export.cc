// An exported folder, read again as a user's program would read it: by what lies on the disk alone.
#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/finite.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/adapter_config.h"
#include "worker/program/safetensors.h"

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

// What tells two adapters apart: each tensor's key and shape, and the scale of each module.
std::vector<std::string> Fingerprint(const program::Program& program) {
  std::vector<std::string> lines;
  for (const program::Parameter& parameter : program.parameters) {
    if (!InAdapterFile(parameter)) continue;
    lines.push_back(absl::StrCat(AdapterFileKey(parameter), " of [",
                                 absl::StrJoin(parameter.shape, ", "), "]"));
  }
  for (const program::Block& block : program.blocks) {
    for (const program::Op& op : program.types[block.type].ops) {
      if (op.attributes.rank == 0) continue;  // Not adapted.
      lines.push_back(
          absl::StrCat(op.name, " of layer ", block.layer, " with scale ", op.attributes.scale));
    }
  }
  return lines;
}

// An adapter that PEFT would load and not apply, wholly or in part, or with another scale, must not
// leave the house: its config alone must lead to the very adapter that was trained.
absl::Status CheckAdapterConfig(const program::AdapterConfig& config, const std::string& path,
                                const program::Program& program) {
  const program::TrainingMode mode = {
      .lora = true, .adapter = config.lora, .compute = program.compute};
  const auto wrong = [&path](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", what));
  };
  const absl::StatusOr<program::Program> read = program::BuildProgram(program.config, mode);
  if (!read.ok()) return wrong(std::string(read.status().message()));
  const std::vector<std::string> expected = Fingerprint(program), found = Fingerprint(*read);
  if (expected != found) {
    const auto [at, other] =
        std::mismatch(expected.begin(), expected.end(), found.begin(), found.end());
    return wrong(at == expected.end() ? absl::StrCat("names ", *other, ", which was not trained")
                                      : absl::StrCat("does not lead to ", *at));
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
  return CheckAdapterConfig(config, config_path, program);
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

absl::Status CheckExport(const ExportOptions& options, const std::vector<TensorBytes>& adapter,
                         const program::Program& program) {
  const std::string path = "the adapter_config.json of the job's result";
  ASSIGN_OR_RETURN(const AdapterContents contents, ContentsOf(adapter));
  ASSIGN_OR_RETURN(const std::string text,
                   AdapterConfigText(options, contents, program.config.tied_embeddings));
  ASSIGN_OR_RETURN(const program::AdapterConfig config, program::ParseAdapterConfig(text, path));
  return CheckAdapterConfig(config, path, program);
}

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

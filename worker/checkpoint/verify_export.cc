// An exported folder, read again as a user's program would read it: by what lies on the disk alone.
#include <algorithm>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/adapter_card.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/finite.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/json.h"
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
absl::Status CheckTensors(const std::string& path, const TensorIndex& index, size_t expected,
                          const std::string& dtype) {
  if (index.size() != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " has ", index.size(), " tensors, not ", expected));
  }
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kRefuse));
  for (const auto& [key, entry] : index) RETURN_IF_ERROR(CheckValues(file, key, entry, dtype));
  return absl::OkStatus();
}

// An adapter that PEFT would load and not apply, wholly or in part, must not leave the house.
absl::Status CheckAdapterConfig(const std::string& path, const program::Program& program) {
  ASSIGN_OR_RETURN(const nlohmann::json config, program::ReadJsonFile(path, {}));
  const auto wrong = [&path](const std::string& what) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": ", what));
  };
  if (!config.is_object() || config.value("peft_type", nlohmann::json()) != "LORA") {
    return wrong("peft_type is not LORA");
  }
  std::vector<std::string> targets;
  for (const nlohmann::json& target : config.value("target_modules", nlohmann::json::array())) {
    if (target.is_string()) targets.push_back(target.get<std::string>());
  }
  for (const program::Parameter& parameter : program.parameters) {
    if (!parameter.adapter) continue;
    absl::string_view module = parameter.key;
    if (absl::ConsumeSuffix(&module, ".lora_A.weight")) {
      if (config.value("r", nlohmann::json()) != parameter.shape[0]) {
        return wrong(absl::StrCat("r is not ", parameter.shape[0], " as of ", parameter.key));
      }
      if (!IsTargeted(std::string(module), targets)) {
        return wrong(absl::StrCat("no target module names ", module));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status VerifyAdapter(const std::string& folder, const program::Program& program,
                           size_t expected) {
  const std::string path = folder + "/adapter_model.safetensors";
  ASSIGN_OR_RETURN(const TensorIndex index, program::ReadSafetensorsHeader(path));
  RETURN_IF_ERROR(program::CheckAdapter(program, index));
  RETURN_IF_ERROR(CheckTensors(path, index, expected, "F32"));
  return CheckAdapterConfig(folder + "/adapter_config.json", program);
}

absl::Status VerifyModel(const std::string& folder, const program::Program& program,
                         size_t expected) {
  const std::string path = folder + "/model.safetensors";
  ASSIGN_OR_RETURN(const TensorIndex index, program::ReadSafetensorsHeader(path));
  RETURN_IF_ERROR(program::CheckWeights(program, index));
  const bool wide = program.compute == program::DType::kF32;
  RETURN_IF_ERROR(CheckTensors(path, index, expected, wide ? "F32" : "BF16"));
  // As one who has nothing but the folder: its own config.json asks for these very weights.
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(folder));
  ASSIGN_OR_RETURN(const program::Program loaded, program::BuildProgram(config, {}));
  return program::CheckWeights(loaded, index);
}

}  // namespace

absl::Status VerifyExport(const std::string& folder, const program::Program& program) {
  const auto& parameters = program.parameters;
  const size_t adapters = std::count_if(parameters.begin(), parameters.end(),
                                        [](const auto& parameter) { return parameter.adapter; });
  if (adapters > 0) return VerifyAdapter(folder, program, adapters);
  return VerifyModel(folder, program, parameters.size());
}

}  // namespace snug::checkpoint

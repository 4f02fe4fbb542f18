// Exports tensors from a safetensors file as a job would at its end, for the test in Python:
//   export_tool SETTINGS.json
// {"kind": "adapter" | "model", "output", "model_dir", "tensors", "metrics", "base_model_name",
//  "display_name", "bf16", "r", "alpha", "dropout", "rslora", "target_modules", "options"}
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/snug/status_macros.h"
#include "worker/checkpoint/export.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/safetensors.h"

namespace snug::checkpoint {
namespace {

struct Loaded {
  std::vector<std::vector<char>> memory;
  std::vector<TensorBytes> tensors;
};

absl::StatusOr<Loaded> Load(const std::string& path) {
  ASSIGN_OR_RETURN(const program::TensorIndex index, program::ReadSafetensorsHeader(path));
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kRefuse));
  Loaded loaded;
  for (const auto& [key, entry] : index) {
    std::vector<char>& memory = loaded.memory.emplace_back(entry.bytes);
    RETURN_IF_ERROR(file.Read(entry.begin, entry.bytes, memory.data()));
    loaded.tensors.push_back({key, entry.dtype, entry.shape, memory.data(), entry.bytes});
  }
  return loaded;
}

absl::Status Run(const nlohmann::json& settings) {
  ExportOptions options = {.model_dir = settings["model_dir"],
                           .base_model_name = settings["base_model_name"],
                           .metrics_file = settings["metrics"],
                           .display_name = settings["display_name"]};
  const bool adapter = settings["kind"] == "adapter";
  if (adapter) {
    options.lora = {.rank = settings["r"],
                    .alpha = settings["alpha"],
                    .dropout = settings["dropout"],
                    .rslora = settings["rslora"],
                    .target_modules = settings["target_modules"]};
    const nlohmann::json& more = settings.value("options", nlohmann::json::object());
    options.lora.rank_pattern = more.value("rank_pattern", options.lora.rank_pattern);
    options.lora.alpha_pattern = more.value("alpha_pattern", options.lora.alpha_pattern);
    options.lora.exclude_modules = more.value("exclude_modules", options.lora.exclude_modules);
    options.lora.modules_to_save = more.value("modules_to_save", options.lora.modules_to_save);
    options.lora.layers_to_transform =
        more.value("layers_to_transform", options.lora.layers_to_transform);
  }
  const std::string output = settings["output"];
  ASSIGN_OR_RETURN(const Loaded loaded, Load(settings["tensors"]));
  RETURN_IF_ERROR((adapter ? ExportAdapter : ExportModel)(output, options, loaded.tensors));
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(options.model_dir));
  const bool bf16 = settings.value("bf16", false);
  const program::TrainingMode mode = {
      .lora = adapter,
      .adapter = options.lora,
      .compute = bf16 ? program::DType::kBF16 : program::DType::kF32};
  ASSIGN_OR_RETURN(const program::Program program, program::BuildProgram(config, mode));
  RETURN_IF_ERROR(VerifyExport(output + ".tmp", program));
  return Publish(output);
}

}  // namespace
}  // namespace snug::checkpoint

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(argv[1]);
  const absl::Status status = snug::checkpoint::Run(nlohmann::json::parse(file));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

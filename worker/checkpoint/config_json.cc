#include "worker/checkpoint/config_json.h"

#include "proto/snug/status_macros.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/json.h"

namespace snug::checkpoint {

absl::StatusOr<nlohmann::ordered_json> ConfigOfExport(const std::string& model_dir,
                                                      const ConfigChanges& changes) {
  const std::string path = model_dir + "/config.json";
  // For its limits and its errors; it does not keep the order.
  RETURN_IF_ERROR(program::ReadJsonFile(path, {}).status());
  ASSIGN_OR_RETURN(const OpenFile file, OpenFile::Open(path, Links::kFollow));
  std::string text(file.bytes(), '\0');
  RETURN_IF_ERROR(file.Read(0, file.bytes(), text.data()));
  auto config = nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return absl::InvalidArgumentError(path + ": not a JSON object");
  for (const char* name : {"dtype", "torch_dtype"}) {
    if (changes.dtype.empty() || !config.contains(name)) continue;
    config[name] = changes.dtype == "F32" ? "float32" : "bfloat16";
  }
  if (changes.vocabulary > 0) config["vocab_size"] = changes.vocabulary;
  return config;
}

}  // namespace snug::checkpoint

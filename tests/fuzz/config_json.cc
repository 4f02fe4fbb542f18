// A base's config.json, as that of a model that is exported becomes of it.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/folder.h"
#include "worker/checkpoint/config_json.h"
#include "worker/program/files/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::checkpoint;
  static const std::string folder = Folder("exported");
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  Write(folder + "/config.json", text);
  const auto read = snug::program::ParseJson(text, "config.json", {});
  const bool good = read.ok() && read->is_object();
  const auto same = ConfigOfExport(folder, {});
  if (same.ok() != good || (good && nlohmann::json(*same) != *read)) abort();
  const ConfigChanges changes = {.dtype = "F32",
                                 .vocabulary = 70,
                                 .architecture = "LlamaForSequenceClassification",
                                 .labels = 2,
                                 .members = {{"auto_map", "x"}}};
  const auto changed = ConfigOfExport(folder, changes);
  if (changed.ok() != good) abort();
  if (!good) return 0;
  const auto& json = *changed;
  if (json.at("vocab_size") != 70 || json.at("id2label").size() != 2) abort();
  if (json.at("architectures").size() != 1 || json.at("auto_map") != "x") abort();
  if (json.contains("num_labels") || json.contains("problem_type")) abort();
  if (read->contains("dtype") && json.at("dtype") != "float32") abort();
  // It can be written, and read again as it is.
  if (nlohmann::ordered_json::parse(json.dump()) != json) abort();
  return 0;
}

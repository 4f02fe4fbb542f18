// gpus.json: {"gpu:0": {"uuid": "GPU-...", "model": "...", "driver": "...", "total_bytes": n,
//                       "capacity_bytes": n}}
#include "server/node/known_gpus.h"

#include "nlohmann/json.hpp"
#include "server/node/attempt_files.h"
#include "server/node/json_file.h"

namespace snug::server {
namespace {

constexpr program::JsonLimits kLimits = {.bytes = 64 << 10, .values = 10'000, .depth = 4};

std::string PathIn(const std::string& state_dir) { return state_dir + "/gpus.json"; }

// What is missing or of another type stays as it is.
template <typename T>
void Take(const nlohmann::json& json, const char* key, T& value) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (const auto* known = found->get_ptr<const T*>()) value = *known;
}

}  // namespace

KnownGpus ReadKnownGpus(const std::string& state_dir) {
  const nlohmann::json json = ReadJson(PathIn(state_dir), kLimits).value_or(nullptr);
  KnownGpus known;
  if (!json.is_object()) return known;
  for (const auto& [name, entry] : json.items()) {
    KnownGpu gpu;
    if (!entry.is_object()) continue;
    Take(entry, "uuid", gpu.gpu.uuid);
    Take(entry, "model", gpu.gpu.model);
    Take(entry, "driver", gpu.gpu.driver);
    Take(entry, "total_bytes", gpu.gpu.total_bytes);
    Take(entry, "capacity_bytes", gpu.capacity_bytes);
    if (gpu.capacity_bytes > 0) known[name] = gpu;
  }
  return known;
}

absl::Status WriteKnownGpus(const std::string& state_dir, const std::vector<Device>& devices) {
  nlohmann::json json = nlohmann::json::object();
  for (const Device& device : devices) {
    if (!device.is_gpu()) continue;
    json[device.name] = {{"uuid", device.gpu.uuid},
                         {"model", device.gpu.model},
                         {"driver", device.gpu.driver},
                         {"total_bytes", device.gpu.total_bytes},
                         {"capacity_bytes", device.capacity_bytes}};
  }
  return WriteFile(PathIn(state_dir), json.dump(2) + "\n");
}

}  // namespace snug::server

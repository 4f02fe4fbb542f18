#include "server/place/host_memory.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int64_t kNoLimit = INT64_MAX;

// A file with one number; "max", no file or no number: no limit.
int64_t LimitIn(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  int64_t bytes = 0;
  if (!(file >> text) || !absl::SimpleAtoi(text, &bytes) || bytes <= 0) return kNoLimit;
  return bytes;
}

int64_t MemTotal(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemTotal:") return kib * 1024;
    file.ignore(256, '\n');
  }
  return kNoLimit;
}

// The group and all its parents: the tightest limit binds.
int64_t LimitAlong(const std::string& mount, std::string group, const char* file) {
  int64_t limit = LimitIn(absl::StrCat(mount, "/", file));
  while (group.size() > 1) {
    limit = std::min(limit, LimitIn(absl::StrCat(mount, group, "/", file)));
    group.resize(group.rfind('/'));
  }
  return limit;
}

int64_t GroupLimit(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  int64_t limit = kNoLimit;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    if (parts[0] == "0")
      limit = std::min(limit, LimitAlong(root + "/sys/fs/cgroup", parts[2], "memory.max"));
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (std::count(controllers.begin(), controllers.end(), "memory") > 0)
      limit = std::min(
          limit, LimitAlong(root + "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes"));
  }
  return limit;
}

absl::Status CheckName(const std::string& name, std::set<std::string>& seen) {
  int number = 0;
  if (!absl::StartsWith(name, "cpu:") || !absl::SimpleAtoi(name.substr(4), &number) || number < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", name, "\": this version knows cpu:0, cpu:1, ..."));
  if (!seen.insert(name).second)
    return absl::InvalidArgumentError(absl::StrCat("device ", name, " is given twice"));
  return absl::OkStatus();
}

}  // namespace

int64_t HostMemoryBytes(const std::string& root) {
  return std::min(MemTotal(root), GroupLimit(root));
}

absl::StatusOr<std::vector<Device>> DevicesOf(const v1::DaemonConfig& config, int64_t host_bytes,
                                              int cores) {
  if (config.devices().empty())
    return std::vector<Device>{
        {.name = "cpu:0", .capacity_bytes = host_bytes / 2, .threads = cores}};
  std::vector<Device> devices;
  std::set<std::string> seen;
  for (const v1::DeviceConfig& given : config.devices()) {
    RETURN_IF_ERROR(CheckName(given.name(), seen));
    Device device{.name = given.name(), .capacity_bytes = host_bytes / 2, .threads = cores};
    if (!given.capacity().empty()) {
      ASSIGN_OR_RETURN(device.capacity_bytes, ParseBytes(given.capacity()));
      if (device.capacity_bytes < 1)
        return absl::InvalidArgumentError(absl::StrCat("device ", given.name(), " has no bytes"));
    }
    if (given.threads() < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("device ", given.name(), ": threads is ", given.threads()));
    if (given.threads() > 0) device.threads = given.threads();
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace snug::server

#include "server/place/host_memory.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

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

}  // namespace

int64_t HostMemoryBytes(const std::string& root) {
  return std::min(MemTotal(root), GroupLimit(root));
}

std::string ProcessorModel(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && absl::StripAsciiWhitespace(parts[0]) == "model name")
      return std::string(absl::StripAsciiWhitespace(parts[1]));
  }
  return "";
}

}  // namespace snug::server

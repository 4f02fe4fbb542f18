#include "server/node/delegated_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 1 << 20;

absl::Status Write(const std::string& path, absl::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  const absl::Cleanup close_it = [fd] { close(fd); };
  if (write(fd, text.data(), text.size()) >= 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

// Of version 2, from the mount on: "" is its root.
absl::StatusOr<std::string> OwnGroup(const std::string& root) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(root + "/proc/self/cgroup", kMostBytes));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, "0::/")) continue;
    const absl::string_view group = line.substr(3);
    return std::string(group == "/" ? "" : group);
  }
  return absl::FailedPreconditionError("this machine has no control groups of version 2");
}

absl::Status CheckIsOurs(const std::string& folder) {
  // The root of all groups has none; the root that a container sees is another's child.
  if (access((folder + "/cgroup.type").c_str(), F_OK) != 0)
    return absl::FailedPreconditionError("its control group is the machine's own");
  ASSIGN_OR_RETURN(const std::string controllers,
                   ReadSmallFile(folder + "/cgroup.controllers", kMostBytes));
  const std::vector<std::string> words =
      absl::StrSplit(absl::StripAsciiWhitespace(controllers), ' ');
  for (const char* needed : {"memory", "pids"})
    if (std::count(words.begin(), words.end(), needed) == 0)
      return absl::FailedPreconditionError(
          absl::StrCat("its control group has no controller ", needed));
  ASSIGN_OR_RETURN(const std::string processes,
                   ReadSmallFile(folder + "/cgroup.procs", kMostBytes));
  if (absl::StripAsciiWhitespace(processes) != absl::StrCat(getpid()))
    return absl::FailedPreconditionError("other processes are in its control group");
  return absl::OkStatus();
}

// The kernel removes none that something runs in.
void RemoveEmptyGroups(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    std::error_code ignored;
    if (entry.is_directory(ignored) && entry.path().filename() != "daemon")
      rmdir(entry.path().c_str());
  }
}

}  // namespace

absl::StatusOr<std::string> TakeDelegatedGroup(const std::string& root) {
  ASSIGN_OR_RETURN(const std::string group, OwnGroup(root));
  const std::string folder = root + "/sys/fs/cgroup" + group, daemon = folder + "/daemon";
  RETURN_IF_ERROR(CheckIsOurs(folder));
  if (mkdir(daemon.c_str(), 0755) != 0 && errno != EEXIST)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", daemon));
  RETURN_IF_ERROR(Write(daemon + "/cgroup.procs", "0"));  // Whoever writes it.
  RETURN_IF_ERROR(Write(folder + "/cgroup.subtree_control", "+memory +pids"));
  RemoveEmptyGroups(folder);
  return folder;
}

}  // namespace snug::server

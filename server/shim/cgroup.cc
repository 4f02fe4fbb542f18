#include "server/shim/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace snug::shim {
namespace {

constexpr size_t kMostText = 4096;

// A file of the kernel, or of its beginning what fits; errno is 0 where it could be read.
std::string ReadText(const std::string& path) {
  std::string text(kMostText, '\0');
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? -1 : read(fd, text.data(), text.size());
  const int error = got < 0 ? errno : 0;
  if (fd >= 0) close(fd);
  text.resize(got < 0 ? 0 : static_cast<size_t>(got));
  errno = error;
  return text;
}

int WriteText(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const int error = write(fd, text.data(), text.size()) < 0 ? errno : 0;
  close(fd);
  return error;
}

// Of "0::/system.slice/x.service" the path; empty for the root, which nobody has to himself.
std::string GroupOf(const std::string& self) {
  size_t line = 0;
  while (line < self.size()) {
    const size_t end = self.find('\n', line);
    const std::string text = self.substr(line, end == std::string::npos ? end : end - line);
    if (text.rfind("0::/", 0) == 0) return text.size() == 4 ? "" : text.substr(3);
    if (end == std::string::npos) break;
    line = end + 1;
  }
  return "";
}

bool HasWord(const std::string& text, const std::string& word) {
  const std::string padded = " " + text.substr(0, text.find('\n')) + " ";
  return padded.find(" " + word + " ") != std::string::npos;
}

int MakeGroup(const std::string& folder) {
  return mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST ? 0 : errno;
}

}  // namespace

int Cgroup::Open(const std::string& mount, const std::string& self, long long memory_bytes,
                 long long processes) {
  const std::string group = GroupOf(self);
  if (group.empty()) return ENOTSUP;
  const std::string folder = mount + group;
  const std::string controllers = ReadText(folder + "/cgroup.controllers");
  if (errno != 0) return errno;
  if (!HasWord(controllers, "memory") || !HasWord(controllers, "pids")) return ENOTSUP;
  if (ReadText(folder + "/cgroup.procs") != std::to_string(getpid()) + "\n") return EBUSY;
  const std::string worker = folder + "/worker";
  int error = MakeGroup(folder + "/shim");
  if (error == 0) error = MakeGroup(worker);
  if (error == 0) error = WriteText(folder + "/shim/cgroup.procs", "0");  // Whoever writes it.
  if (error == 0) error = WriteText(folder + "/cgroup.subtree_control", "+memory +pids");
  if (error == 0) error = WriteText(worker + "/memory.max", std::to_string(memory_bytes));
  if (error == 0) error = WriteText(worker + "/memory.oom.group", "1");
  if (error == 0) error = WriteText(worker + "/pids.max", std::to_string(processes));
  if (error == 0) folder_ = folder;
  return error;
}

int Cgroup::Enter() const {
  return folder_.empty() ? 0 : WriteText(folder_ + "/worker/cgroup.procs", "0");
}

int Cgroup::Leave() const {
  return folder_.empty() ? 0 : WriteText(folder_ + "/shim/cgroup.procs", "0");
}

long long Cgroup::MemoryKills() const {
  const std::string text = folder_.empty() ? "" : ReadText(folder_ + "/worker/memory.events");
  const char* line = std::strstr(text.c_str(), "oom_kill ");
  return line == nullptr ? 0 : std::atoll(line + std::strlen("oom_kill "));
}

}  // namespace snug::shim

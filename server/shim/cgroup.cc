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

// What is not there on this machine cannot be limited by it: swap without its accounting.
int WriteIfThere(const std::string& path, const std::string& text) {
  const int error = WriteText(path, text);
  return error == ENOENT ? 0 : error;
}

int Limit(const std::string& folder, const CgroupLimits& limits) {
  int error = WriteText(folder + "/memory.max", std::to_string(limits.memory_bytes));
  if (error == 0) error = WriteIfThere(folder + "/memory.swap.max", "0");
  if (error == 0) error = WriteText(folder + "/memory.oom.group", "1");
  if (error == 0) error = WriteText(folder + "/pids.max", std::to_string(limits.processes));
  return error;
}

}  // namespace

int Cgroup::OpenOwn(const std::string& mount, const std::string& self, const CgroupLimits& limits) {
  const std::string group = GroupOf(self);
  if (group.empty()) return ENOTSUP;
  const std::string folder = mount + group;
  const std::string controllers = ReadText(folder + "/cgroup.controllers");
  if (errno != 0) return errno;
  if (!HasWord(controllers, "memory") || !HasWord(controllers, "pids")) return ENOTSUP;
  if (ReadText(folder + "/cgroup.procs") != std::to_string(getpid()) + "\n") return EBUSY;
  const std::string home = folder + "/shim", worker = folder + "/worker";
  int error = MakeGroup(home);
  if (error == 0) error = MakeGroup(worker);
  if (error == 0) error = WriteText(home + "/cgroup.procs", "0");  // Whoever writes it.
  if (error == 0) error = WriteText(folder + "/cgroup.subtree_control", "+memory +pids");
  if (error == 0) error = Limit(worker, limits);
  if (error == 0) {
    home_ = home;
    worker_ = worker;
  }
  return error;
}

int Cgroup::OpenBelow(const std::string& parent, const std::string& name, const std::string& mount,
                      const std::string& self, const CgroupLimits& limits) {
  const std::string group = GroupOf(self);
  if (group.empty()) return ENOTSUP;
  const std::string worker = parent + "/" + name;
  int error = MakeGroup(worker);
  if (error != 0) return error;
  error = Limit(worker, limits);
  if (error != 0) {
    rmdir(worker.c_str());
    return error;
  }
  home_ = mount + group;
  worker_ = worker;
  return 0;
}

int Cgroup::Enter() const {
  return worker_.empty() ? 0 : WriteText(worker_ + "/cgroup.procs", "0");
}

int Cgroup::Leave() const { return worker_.empty() ? 0 : WriteText(home_ + "/cgroup.procs", "0"); }

long long Cgroup::MemoryKills() const {
  const std::string text = worker_.empty() ? "" : ReadText(worker_ + "/memory.events");
  const char* line = std::strstr(text.c_str(), "oom_kill ");
  return line == nullptr ? 0 : std::atoll(line + std::strlen("oom_kill "));
}

void Cgroup::Remove() {
  if (!worker_.empty()) rmdir(worker_.c_str());
  worker_.clear();
}

}  // namespace snug::shim

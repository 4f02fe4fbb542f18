#include "server/node/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr size_t kMaxProcBytes = 4 << 20;  // More environment than the kernel lets a process have.

// A file of /proc/<pid>; empty when the process is gone or is not for us to see.
absl::StatusOr<std::string> ReadOf(pid_t pid, absl::string_view name) {
  const std::string path = absl::StrCat("/proc/", pid, "/", name);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  absl::Cleanup close_it = [fd] {
    if (fd >= 0) close(fd);
  };
  std::string text;
  char buffer[4096];
  ssize_t got = fd < 0 ? -1 : 0;
  while (fd >= 0 && text.size() < kMaxProcBytes && (got = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<size_t>(got));
  if (got >= 0) return text;
  if (errno == ENOENT || errno == ESRCH || errno == EACCES || errno == EPERM) return std::string();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
}

// Field 6 of /proc/<pid>/stat; the name in field 2 may hold anything, so counting starts after it.
// 0: no such process, or a zombie.
absl::StatusOr<pid_t> SessionOf(pid_t pid) {
  ASSIGN_OR_RETURN(const std::string text, ReadOf(pid, "stat"));
  const size_t after_name = text.rfind(')');
  char state = 0;
  int parent = 0, group = 0, session = 0;
  if (after_name == std::string::npos ||
      sscanf(text.c_str() + after_name + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : session;
}

absl::StatusOr<bool> Belongs(pid_t pid, pid_t session, const std::string& attempt_dir) {
  ASSIGN_OR_RETURN(const pid_t its_session, SessionOf(pid));
  if (its_session != session) return false;
  ASSIGN_OR_RETURN(const std::string attempt, AttemptOf(pid));
  return attempt == attempt_dir;
}

}  // namespace

// The environment is zero-separated, as it was when the process began.
absl::StatusOr<std::string> AttemptOf(pid_t pid) {
  ASSIGN_OR_RETURN(const std::string environment, ReadOf(pid, "environ"));
  for (absl::string_view entry : absl::StrSplit(environment, '\0'))
    if (absl::ConsumePrefix(&entry, "SNUG_ATTEMPT=")) return std::string(entry);
  return std::string();
}

absl::StatusOr<bool> LeadsSession(pid_t pid, const std::string& attempt_dir) {
  return Belongs(pid, pid, attempt_dir);
}

absl::StatusOr<std::vector<pid_t>> SessionMembers(pid_t session, const std::string& attempt_dir) {
  std::vector<pid_t> members;
  if (session <= 1) return members;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return absl::ErrnoToStatus(errno, "cannot list /proc");
  const absl::Cleanup close_it = [proc] { closedir(proc); };
  while (true) {
    errno = 0;
    const dirent* entry = readdir(proc);
    if (entry == nullptr && errno != 0) return absl::ErrnoToStatus(errno, "cannot list /proc");
    if (entry == nullptr) return members;
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == session) continue;
    ASSIGN_OR_RETURN(const bool belongs, Belongs(pid, session, attempt_dir));
    if (belongs) members.push_back(pid);
  }
}

absl::StatusOr<int> SignalSession(pid_t session, const std::string& attempt_dir, int signal) {
  ASSIGN_OR_RETURN(const std::vector<pid_t> members, SessionMembers(session, attempt_dir));
  int signalled = 0;
  for (pid_t pid : members) {
    const int pinned = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pinned < 0 && errno == ESRCH) continue;
    if (pinned < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot pin process ", pid));
    const absl::Cleanup close_it = [pinned] { close(pinned); };
    ASSIGN_OR_RETURN(const bool belongs, Belongs(pid, session, attempt_dir));
    if (belongs && syscall(SYS_pidfd_send_signal, pinned, signal, nullptr, 0) == 0) ++signalled;
  }
  return signalled;
}

}  // namespace snug::server

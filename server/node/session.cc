#include "server/node/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr absl::Duration kExecPatience = absl::Milliseconds(200);
constexpr absl::Duration kExecPause = absl::Milliseconds(1);
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

struct ProcessStat {
  pid_t session = 0;             // 0: no such process, or a zombie.
  bool has_environment = false;  // False in the middle of an exec, and of an exit.
};

// Of /proc/<pid>/stat; the name in field 2 may hold anything, so counting starts after it.
absl::StatusOr<ProcessStat> StatOf(pid_t pid) {
  constexpr size_t kState = 0, kSession = 3, kEnvironmentEnd = 48;  // Fields 3, 6 and 51.
  ASSIGN_OR_RETURN(const std::string text, ReadOf(pid, "stat"));
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return ProcessStat();
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(after_name + 1), ' ', absl::SkipWhitespace());
  ProcessStat stat;
  if (fields.size() <= kEnvironmentEnd || fields[kState] == "Z" || fields[kState] == "X" ||
      !absl::SimpleAtoi(fields[kSession], &stat.session))
    return ProcessStat();
  stat.has_environment = fields[kEnvironmentEnd] != "0";
  return stat;
}

// Another user's environment is not for us to see: it looks like none.
bool IsOurs(pid_t pid) {
  struct stat folder {};
  return stat(absl::StrCat("/proc/", pid).c_str(), &folder) == 0 &&
         (geteuid() == 0 || folder.st_uid == geteuid());
}

// A child is in its session before it has its environment, and loses that before its files: it is
// waited for, since a process that cannot be told from a stranger's is not nobody.
absl::StatusOr<bool> Belongs(pid_t pid, pid_t session, const std::string& attempt_dir) {
  for (const absl::Time end = absl::Now() + kExecPatience;; absl::SleepFor(kExecPause)) {
    ASSIGN_OR_RETURN(const ProcessStat before, StatOf(pid));
    if (before.session != session) return false;
    ASSIGN_OR_RETURN(const std::string attempt, AttemptOf(pid));
    if (!attempt.empty()) return attempt == attempt_dir;
    ASSIGN_OR_RETURN(const ProcessStat after, StatOf(pid));
    const bool had_one = before.has_environment && after.has_environment;
    if (had_one || after.session != session || !IsOurs(pid)) return false;
    if (absl::Now() > end)
      return absl::UnavailableError(
          absl::StrCat("process ", pid, " of session ", session, " has no environment yet"));
  }
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

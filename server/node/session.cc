#include "server/node/session.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
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

constexpr int kLooks = 3;
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(2);
constexpr size_t kMaxProcBytes = 4 << 20;  // More environment than the kernel lets a process have.

// A file of /proc/<pid>; empty when the process is gone. PERMISSION_DENIED: it is not for us to
// see.
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
  if (errno == ENOENT || errno == ESRCH) return std::string();
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

// The attempt dir that an environment names, which is zero-separated and as it was when the process
// began.
std::string AttemptIn(absl::string_view environment) {
  for (absl::string_view entry : absl::StrSplit(environment, '\0'))
    if (absl::ConsumePrefix(&entry, "SNUG_ATTEMPT=")) return std::string(entry);
  return std::string();
}

// A child is in its session before it has its environment, and loses that before its files: then
// nobody can say, for a moment, whose it is. UNAVAILABLE.
absl::StatusOr<bool> IsMarked(pid_t pid, pid_t session, const std::string& attempt_dir) {
  ASSIGN_OR_RETURN(const ProcessStat before, StatOf(pid));
  if (before.session != session) return false;
  const absl::StatusOr<std::string> environment = ReadOf(pid, "environ");
  if (absl::IsPermissionDenied(environment.status())) return false;  // Another user's.
  RETURN_IF_ERROR(environment.status());
  if (const std::string attempt = AttemptIn(*environment); !attempt.empty())
    return attempt == attempt_dir;
  ASSIGN_OR_RETURN(const ProcessStat after, StatOf(pid));
  if (after.session != session || (before.has_environment && after.has_environment)) return false;
  return absl::UnavailableError(
      absl::StrCat("process ", pid, " of session ", session, " begins or ends just now"));
}

// Whoever starts a process goes on a moment before that leaves its parent's memory, and with it its
// parent's environment: one without a mark is looked at again.
absl::StatusOr<bool> Belongs(pid_t pid, pid_t session, const std::string& attempt_dir) {
  ASSIGN_OR_RETURN(const ProcessStat stat, StatOf(pid));
  if (stat.session != session) return false;
  for (int look = 1; look < kLooks; ++look) {
    const absl::StatusOr<bool> marked = IsMarked(pid, session, attempt_dir);
    if (!marked.ok() || *marked) return marked;
    absl::SleepFor(kBetweenLooks);
  }
  return IsMarked(pid, session, attempt_dir);
}

// An error about one of them does not keep the others away.
absl::Status EachProcess(const std::function<absl::Status(pid_t)>& look) {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return absl::ErrnoToStatus(errno, "cannot list /proc");
  const absl::Cleanup close_it = [proc] { closedir(proc); };
  absl::Status status;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(proc);
    if (entry == nullptr && errno != 0) return absl::ErrnoToStatus(errno, "cannot list /proc");
    if (entry == nullptr) return status;
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid)) status.Update(look(pid));
  }
}

absl::Status FindMembers(pid_t session, const std::string& attempt_dir,
                         std::vector<pid_t>& members) {
  if (session <= 1) return absl::OkStatus();
  return EachProcess([&](pid_t pid) -> absl::Status {
    if (pid == session) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool belongs, Belongs(pid, session, attempt_dir));
    if (belongs) members.push_back(pid);
    return absl::OkStatus();
  });
}

// False: it has gone meanwhile.
absl::StatusOr<bool> SignalMember(pid_t pid, pid_t session, const std::string& attempt_dir,
                                  int signal) {
  const int pinned = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pinned < 0 && errno == ESRCH) return false;
  if (pinned < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot pin process ", pid));
  const absl::Cleanup close_it = [pinned] { close(pinned); };
  ASSIGN_OR_RETURN(const bool belongs, Belongs(pid, session, attempt_dir));
  return belongs && syscall(SYS_pidfd_send_signal, pinned, signal, nullptr, 0) == 0;
}

}  // namespace

absl::StatusOr<std::string> AttemptOf(pid_t pid) {
  const absl::StatusOr<std::string> environment = ReadOf(pid, "environ");
  if (absl::IsPermissionDenied(environment.status())) return std::string();
  RETURN_IF_ERROR(environment.status());
  return AttemptIn(*environment);
}

absl::StatusOr<std::map<pid_t, std::string>> ProcessesOfAttempts(const std::string& folder) {
  std::map<pid_t, std::string> found;
  RETURN_IF_ERROR(EachProcess([&](pid_t pid) -> absl::Status {
    ASSIGN_OR_RETURN(std::string attempt, AttemptOf(pid));
    if (absl::StartsWith(attempt, folder)) found[pid] = std::move(attempt);
    return absl::OkStatus();
  }));
  return found;
}

absl::StatusOr<bool> LeadsSession(pid_t pid, const std::string& attempt_dir) {
  return Belongs(pid, pid, attempt_dir);
}

absl::StatusOr<std::vector<pid_t>> SessionMembers(pid_t session, const std::string& attempt_dir) {
  std::vector<pid_t> members;
  RETURN_IF_ERROR(FindMembers(session, attempt_dir, members));
  return members;
}

absl::StatusOr<int> SignalSession(pid_t session, const std::string& attempt_dir, int signal) {
  std::vector<pid_t> members;
  absl::Status status = FindMembers(session, attempt_dir, members);
  int signalled = 0;
  for (pid_t pid : members) {
    const absl::StatusOr<bool> sent = SignalMember(pid, session, attempt_dir, signal);
    status.Update(sent.status());
    signalled += sent.value_or(false);
  }
  if (!status.ok()) return status;
  return signalled;
}

}  // namespace snug::server

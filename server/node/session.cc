#include "server/node/session.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace snug::server {
namespace {

// Field 6 of /proc/<pid>/stat; the name in field 2 may hold anything, so counting starts after it.
// 0: no such process, or a zombie.
pid_t SessionOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text);
  const size_t after_name = text.rfind(')');
  char state = 0;
  int parent = 0, group = 0, session = 0;
  if (after_name == std::string::npos ||
      sscanf(text.c_str() + after_name + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : session;
}

bool Belongs(pid_t pid, pid_t session, const std::string& attempt_dir) {
  return pid != session && SessionOf(pid) == session && AttemptOf(pid) == attempt_dir;
}

}  // namespace

// The environment is zero-separated, as it was when the process began.
std::string AttemptOf(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/environ"), std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    absl::string_view text = entry;
    if (absl::ConsumePrefix(&text, "SNUG_ATTEMPT=")) return std::string(text);
  }
  return "";
}

std::vector<pid_t> SessionMembers(pid_t session, const std::string& attempt_dir) {
  std::vector<pid_t> members;
  DIR* proc = session > 1 ? opendir("/proc") : nullptr;
  if (proc == nullptr) return members;
  while (const dirent* entry = readdir(proc)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && Belongs(pid, session, attempt_dir))
      members.push_back(pid);
  }
  closedir(proc);
  return members;
}

int SignalSession(pid_t session, const std::string& attempt_dir, int signal) {
  int signalled = 0;
  for (pid_t pid : SessionMembers(session, attempt_dir)) {
    const int pinned = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pinned < 0) continue;
    if (Belongs(pid, session, attempt_dir) &&
        syscall(SYS_pidfd_send_signal, pinned, signal, nullptr, 0) == 0)
      ++signalled;
    close(pinned);
  }
  return signalled;
}

}  // namespace snug::server

// snug-shim ATTEMPT_DIR WORKER_BINARY: the parent of one worker, which outlives the daemon.
//
// Holds an exclusive flock on ATTEMPT_DIR/lock from before it is started (the daemon takes the lock
// and passes it as descriptor 3) to after exit.json is on the disk: whoever gets that lock knows
// that the attempt is over. Starts `WORKER_BINARY ATTEMPT_DIR/assignment.binpb` with its output in
// worker.log (server/shim/worker_log.h bounds it), waits for it, kills what it left behind, writes
// how it ended:
//   exit.json  {"schema":2,"instance":"...","job":"...","epoch":n,"nonce":"...","pid":n,
//               "exit_code":n,"signal":n,"wall_us":n[,"oom_kills":n,"cgroup":"..."]}
// Instance and nonce come in SNUG_INSTANCE and SNUG_NONCE: by them the daemon tells this record
// from one that another history of its store has left. SNUG_ATTEMPT names ATTEMPT_DIR, by which the
// daemon knows what belongs to the attempt. SNUG_MEMORY_MAX, where it is given, is the most bytes
// of memory that the kernel shall let the worker have, and SNUG_CGROUP the folder of the daemon's
// where a control group for it can be made (server/shim/cgroup.h). No threads, no gRPC, no
// allocation to speak of; it does not restart anything and knows nothing of jobs.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "server/failpoint.h"
#include "server/shim/cgroup.h"
#include "server/shim/confine.h"
#include "server/shim/worker_log.h"

namespace {

using snug::shim::Cgroup;
using snug::shim::WorkerLog;

constexpr int kMostProcesses = 4096;  // And threads, of a worker.
constexpr int kLockFd = 3;
constexpr int kExitUsage = 64;   // EX_USAGE
constexpr int kExitLocked = 75;  // EX_TEMPFAIL
constexpr int kReapRounds =
    100;  // Of 50 ms: what cannot be killed in 5 s is left to the daemon's sweep.

volatile pid_t worker_pid = 0;

// Someone asks this process to end (a machine that shuts down): the worker is told, and its end
// ends us.
void Forward(int signal) {
  if (worker_pid > 0) kill(-worker_pid, signal);
}

bool SameFile(int fd, const std::string& path) {
  struct stat a {
  }, b{};
  return fstat(fd, &a) == 0 && stat(path.c_str(), &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

bool TakeLock(const std::string& path) {
  if (!SameFile(kLockFd, path)) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (fd < 0) return false;
    if (fd != kLockFd) {
      dup2(fd, kLockFd);
      close(fd);
    }
  }
  fcntl(kLockFd, F_SETFD, FD_CLOEXEC);
  return flock(kLockFd, LOCK_EX | LOCK_NB) == 0;
}

// A hint for the daemon that adopts us; the lock itself is the proof.
void WritePid() {
  const std::string text = std::to_string(getpid()) + "\n";
  if (ftruncate(kLockFd, 0) != 0 || pwrite(kLockFd, text.data(), text.size(), 0) < 0)
    perror("snug-shim: lock");
}

// `output`: the end of a pipe for what it prints.
int StartWorker(const std::string& dir, const char* binary, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, 1);
  posix_spawn_file_actions_adddup2(&files, output, 2);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string assignment = dir + "/assignment.binpb";
  std::string program = binary;
  char* argv[] = {program.data(), assignment.data(), nullptr};
  pid_t pid = 0;
  FAILPOINT("worker.spawn");
  const int error = posix_spawn(&pid, binary, &files, &attributes, argv, environ);
  FAILPOINT("worker.spawned");
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) worker_pid = pid;
  return error;
}

pid_t ParentOf(const char* pid) {
  const std::string path = std::string("/proc/") + pid + "/stat";
  FILE* file = fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  char text[512];
  const size_t size = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  text[size] = '\0';
  const char* after_name = strrchr(text, ')');
  int parent = 0;
  char state = 0;
  if (after_name == nullptr || sscanf(after_name + 1, " %c %d", &state, &parent) != 2) return 0;
  return parent;
}

// As subreaper we are the parent of everything that the worker started and abandoned, in whatever
// group it is.
void KillChildren() {
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return;
  while (const dirent* entry = readdir(proc)) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
    if (ParentOf(entry->d_name) == getpid()) kill(atoi(entry->d_name), SIGKILL);
  }
  closedir(proc);
}

// True: the worker has ended.
bool Reap(int& status) {
  int one = 0;
  pid_t pid = 0;
  while ((pid = waitpid(-1, &one, WNOHANG)) > 0) {
    if (pid != worker_pid) continue;
    status = one;
    return true;
  }
  return pid < 0 && errno == ECHILD;
}

// Copies what the worker prints until it ends, then takes down what it left.
int WaitForWorker(int output, int child_signals, WorkerLog& log) {
  int status = 0;
  while (!Reap(status)) {
    pollfd set[] = {{output, POLLIN, 0}, {child_signals, POLLIN, 0}};
    if (poll(set, 2, -1) < 0) continue;
    signalfd_siginfo told{};
    if (set[1].revents != 0 && read(child_signals, &told, sizeof told) < 0) continue;
    // Nobody has its other end any more: what is left is to wait.
    if (set[0].revents != 0 && !log.Copy(output)) output = -1;
  }
  kill(-worker_pid, SIGKILL);
  for (int round = 0; round < kReapRounds; ++round) {
    KillChildren();
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (waitpid(-1, nullptr, WNOHANG) < 0) break;  // ECHILD: nobody is left.
    const timespec pause = {0, 50'000'000};
    nanosleep(&pause, nullptr);
  }
  if (output >= 0) log.Copy(output);
  return status;
}

long long WallMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000LL + now.tv_nsec / 1000;
}

// <state>/jobs/<job>/attempts/<epoch>
std::string PartFromEnd(const std::string& path, int part) {
  size_t end = path.size();
  for (; part > 0 && end != std::string::npos; --part) end = path.rfind('/', end - 1);
  if (end == std::string::npos || end == 0) return "";
  const size_t begin = path.rfind('/', end - 1);
  return path.substr(begin + 1, end - begin - 1);
}

bool WriteDurably(const std::string& dir, const std::string& text) {
  const std::string aside = dir + "/exit.json.tmp";
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool written =
      TEMP_FAILURE_RETRY(write(fd, text.data(), text.size())) == static_cast<ssize_t>(text.size());
  FAILPOINT("exit.written");
  const bool synced = fsync(fd) == 0;
  close(fd);
  FAILPOINT("exit.synced");
  if (!written || !synced || rename(aside.c_str(), (dir + "/exit.json").c_str()) != 0) return false;
  FAILPOINT("exit.renamed");
  const int folder = open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool durable = folder >= 0 && fsync(folder) == 0;
  FAILPOINT("exit.durable");
  if (folder >= 0) close(folder);
  return durable;
}

// Of the daemon's own making, hexadecimal: nothing to be escaped.
std::string Told(const char* variable) {
  const char* value = getenv(variable);
  const std::string text = value == nullptr ? "" : value;
  return text.find_first_not_of("0123456789abcdefABCDEF-") == std::string::npos ? text : "";
}

// Of a path that the service manager has named, and may have escaped by backslashes.
std::string Quoted(const std::string& text) {
  constexpr size_t kMost = 1024;
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMost)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return quoted + '"';
}

// How the worker ended.
struct End {
  int status = 0;           // As waitpid gives it; 127 when it could not be started.
  long long oom_kills = 0;  // Of its control group, for the memory of this one:
  std::string cgroup = "";
};

std::string MemoryPart(const End& end) {
  if (end.oom_kills == 0) return "";
  return ",\"oom_kills\":" + std::to_string(end.oom_kills) + ",\"cgroup\":" + Quoted(end.cgroup);
}

bool WriteExit(const std::string& dir, const End& end) {
  const int exit_code = WIFEXITED(end.status) ? WEXITSTATUS(end.status) : -1;
  const int signal = WIFSIGNALED(end.status) ? WTERMSIG(end.status) : 0;
  const std::string epoch = PartFromEnd(dir, 0);
  const bool number = epoch.find_first_not_of("0123456789") == std::string::npos && !epoch.empty();
  const std::string text =
      "{\"schema\":2,\"instance\":\"" + Told("SNUG_INSTANCE") + "\",\"job\":\"" +
      PartFromEnd(dir, 2) + "\",\"epoch\":" + (number ? epoch : "0") + ",\"nonce\":\"" +
      Told("SNUG_NONCE") + "\"" + ",\"pid\":" + std::to_string(worker_pid) +
      ",\"exit_code\":" + std::to_string(exit_code) + ",\"signal\":" + std::to_string(signal) +
      ",\"wall_us\":" + std::to_string(WallMicroseconds()) + MemoryPart(end) + "}\n";
  return WriteDurably(dir, text);
}

std::string WholeFile(const char* path) {
  FILE* file = fopen(path, "re");
  if (file == nullptr) return "";
  char text[4096];
  const size_t size = fread(text, 1, sizeof text, file);
  fclose(file);
  return std::string(text, size);
}

// Puts what is started next under the kernel's limits, as far as this machine has them.
void LimitWorker(const std::string& dir, Cgroup& cgroup, WorkerLog& log) {
  const char* bytes = getenv("SNUG_MEMORY_MAX");
  if (bytes == nullptr) return;
  const char* parent = getenv("SNUG_CGROUP");
  const snug::shim::CgroupLimits limits = {.memory_bytes = atoll(bytes),
                                           .processes = kMostProcesses};
  const std::string self = WholeFile("/proc/self/cgroup");
  int error = parent == nullptr
                  ? cgroup.OpenOwn("/sys/fs/cgroup", self, limits)
                  : cgroup.OpenBelow(parent, PartFromEnd(dir, 2) + "." + PartFromEnd(dir, 0),
                                     "/sys/fs/cgroup", self, limits);
  if (error == 0) error = cgroup.Enter();
  log.Say(error == 0 ? "[snug-shim: the kernel gives the worker " + std::string(bytes) +
                           " bytes of memory at most]\n"
                     : "[snug-shim: the kernel does not limit the worker's memory: " +
                           std::string(strerror(error)) + "]\n");
  unsetenv("SNUG_MEMORY_MAX");
  unsetenv("SNUG_CGROUP");
}

// This process itself, for its children have no more than it has. It deliberately keeps no files
// from a worker, which reads what its job names with the rights of the user that it runs as.
void Confine(WorkerLog& log) {
  int error = snug::shim::GiveUpPrivileges();
  if (const int calls = snug::shim::RefuseCalls(snug::shim::Sockets::kLocal); error == 0)
    error = calls;
  if (error != 0)
    log.Say("[snug-shim: the worker runs without its sandbox: " + std::string(strerror(error)) +
            "]\n");
}

End RunWorker(const std::string& dir, const char* binary) {
  const End kCannotExecute = {.status = 127 << 8};
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  const int child_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  int ends[2];
  if (child_signals < 0 || pipe2(ends, O_CLOEXEC) != 0) return kCannotExecute;
  WorkerLog log(dir + "/worker.log");
  Confine(log);
  Cgroup cgroup;
  LimitWorker(dir, cgroup, log);
  const int started = StartWorker(dir, binary, ends[1]);
  cgroup.Leave();
  close(ends[1]);
  if (started != 0) {
    cgroup.Remove();
    return kCannotExecute;
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  End end = {.status = WaitForWorker(ends[0], child_signals, log)};
  end.oom_kills = cgroup.MemoryKills();
  end.cgroup = cgroup.worker();
  if (end.oom_kills > 0)
    log.Say("[snug-shim: the kernel ended the worker: it had all of its memory]\n");
  cgroup.Remove();
  return end;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: snug-shim ATTEMPT_DIR WORKER_BINARY\n");
    return kExitUsage;
  }
  std::string dir = argv[1];
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  setsid();
  if (!TakeLock(dir + "/lock")) return kExitLocked;
  close_range(kLockFd + 1, ~0U, 0);
  WritePid();
  setenv("SNUG_ATTEMPT", dir.c_str(), 1);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGHUP, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, Forward);
  return WriteExit(dir, RunWorker(dir, argv[2])) ? 0 : 1;
}

// An operating system that fails, laid over snugd by LD_PRELOAD: calls that fail or come short,
// files of which only what was synced is left, a wall clock that jumps. Other programs that inherit
// it are left alone. Before snugd ends by SIGSEGV it says in whose code that is: a line
// "faulty_os: SIGSEGV in MODULE MODULE ..." on its standard error, innermost first.
//
//   FAULTY_PROGRAM=NAME   the beginning of another program's name than snugd
//   FAULTY_DIR=DIR        only files below it are meant
//   FAULTY_CALL=WHICH:WHAT@N[+]
//                         the Nth such call fails; with + all from it on. WHICH:
//                         sync (fsync, fdatasync), write (write, pwrite), read (read),
//                         open (open, openat), rename (rename, renameat2), accept (accept4),
//                         spawn (posix_spawnp), thread (pthread_create), malloc; WHAT: the name
//                         of an error, as ENOSPC; short (half of a write), null (malloc), delay
//                         (200 ms), kill (the process is killed there), lost (a sync that says it
//                         has been done, and was not)
//   FAULTY_SWITCH=FILE    a byte: calls are counted, and fail, while it is not 0
//   FAULTY_HITS=FILE      gets a byte for each call that fails
//   FAULTY_SYNCED=DIR     has a copy of each file as it was last synced, by its inode's number
//   FAULTY_CLOCK=FILE     eight bytes, seconds by which the wall clock is ahead
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" void* __libc_malloc(size_t size);

namespace {

struct Fault {
  char which[16] = "";
  char what[16] = "";
  long from = 0;
  bool on = false;  // All from there on.
};

bool g_meant = false;  // This program.
Fault g_fault;
char g_dir[4096] = "", g_synced[4096] = "";
int g_hits = -1;
const volatile int64_t* g_ahead = nullptr;
const volatile char* g_switch = nullptr;
std::atomic<long> g_calls{0};

int64_t Ahead() { return g_ahead == nullptr ? 0 : *g_ahead; }

// The bytes of a file that a test changes.
const void* Map(const char* path, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  void* at = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || at == MAP_FAILED) abort();
  close(fd);
  return at;
}

bool IsMeant() {
  char program[4096] = "";
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return false;
  const char* slash = strrchr(program, '/');
  const char* wanted = getenv("FAULTY_PROGRAM");
  if (wanted == nullptr) wanted = "snugd";
  return slash != nullptr && strncmp(slash + 1, wanted, strlen(wanted)) == 0;
}

// The module that has the address, without its folder.
const char* ModuleOf(void* address) {
  Dl_info found;
  if (dladdr(address, &found) == 0 || found.dli_fname == nullptr) return "?";
  const char* slash = strrchr(found.dli_fname, '/');
  return slash == nullptr ? found.dli_fname : slash + 1;
}

// A stack that has overflowed leaves no room for this: then nothing is said.
void TellWhereItFaults(int signal) {
  constexpr int kOwnFrames = 2;  // This function, and what the kernel returns from it by.
  void* frames[64];
  const int count = backtrace(frames, 64);
  char line[4096] = "faulty_os: SIGSEGV in";
  size_t size = strlen(line);
  for (int i = kOwnFrames; i < count && size < sizeof line - 256; ++i)
    size += static_cast<size_t>(snprintf(line + size, 255, " %.200s", ModuleOf(frames[i])));
  line[size++] = '\n';
  if (syscall(SYS_write, STDERR_FILENO, line, size) < 0) abort();
  raise(signal);  // It is blocked until this function has returned, and then ends the process.
}

void SayWhereItFaults() {
  void* frame;
  backtrace(&frame, 1);  // What it needs it loads the first time, which a handler must not do.
  struct sigaction action {};
  action.sa_handler = TellWhereItFaults;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGSEGV, &action, nullptr);
}

__attribute__((constructor)) void SetUp() {
  if (!IsMeant()) return;
  SayWhereItFaults();
  if (const char* dir = getenv("FAULTY_DIR")) snprintf(g_dir, sizeof g_dir, "%s", dir);
  if (const char* synced = getenv("FAULTY_SYNCED"))
    snprintf(g_synced, sizeof g_synced, "%s", synced);
  if (const char* call = getenv("FAULTY_CALL")) {
    char on = 0;
    if (sscanf(call, "%15[^:]:%15[^@]@%ld%c", g_fault.which, g_fault.what, &g_fault.from, &on) < 3)
      abort();
    g_fault.on = on == '+';
  }
  if (const char* clock = getenv("FAULTY_CLOCK"))
    g_ahead = static_cast<const int64_t*>(Map(clock, sizeof *g_ahead));
  if (const char* file = getenv("FAULTY_SWITCH")) g_switch = static_cast<const char*>(Map(file, 1));
  if (const char* hits = getenv("FAULTY_HITS"))
    g_hits = open(hits, O_WRONLY | O_APPEND | O_CLOEXEC);
  g_meant = true;
}

// Whether this is a call that is to fail: counts it.
bool IsFaulty(const char* which) {
  if (!g_meant || strcmp(g_fault.which, which) != 0) return false;
  if (g_switch != nullptr && *g_switch == 0) return false;
  const long call = ++g_calls;
  if (g_fault.on ? call < g_fault.from : call != g_fault.from) return false;
  if (g_hits >= 0 && syscall(SYS_write, g_hits, "x", 1) != 1) abort();
  if (strcmp(g_fault.what, "kill") == 0) kill(getpid(), SIGKILL);
  return true;
}

int ErrorOf(const char* what) {
  constexpr int kErrors[] = {EIO,    ENOSPC, EDQUOT, EINTR,  EROFS,
                             EACCES, EMFILE, ENFILE, EAGAIN, ENOMEM};
  for (const int error : kErrors)
    if (strcmp(strerrorname_np(error), what) == 0) return error;
  abort();
}

bool Is(const char* what) { return strcmp(g_fault.what, what) == 0; }

// The path of a file that is meant; false: it is none.
bool PathOf(int fd, char (&path)[4096]) {
  if (!g_meant || g_dir[0] == 0) return false;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return false;
  path[size] = 0;
  return strncmp(path, g_dir, strlen(g_dir)) == 0;
}

// By calls of the kernel: those of the library are ours.
void Keep(const char* path) {
  struct stat status {};
  if (stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return;
  char name[8192], aside[8300];
  snprintf(name, sizeof name, "%s/%lu", g_synced, static_cast<unsigned long>(status.st_ino));
  snprintf(aside, sizeof aside, "%s.%ld", name, syscall(SYS_gettid));
  const int from = open(path, O_RDONLY | O_CLOEXEC);
  const int to = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  char bytes[65536];
  for (long got; from >= 0 && to >= 0 && (got = syscall(SYS_read, from, bytes, sizeof bytes)) > 0;)
    if (syscall(SYS_write, to, bytes, got) != got) abort();
  if (from >= 0) close(from);
  if (to >= 0) close(to);
  rename(aside, name);
}

int Sync(int fd, long number) {
  char path[4096];
  const bool meant = PathOf(fd, path);
  if (meant && IsFaulty("sync")) {
    if (Is("lost")) return 0;
    if (!Is("delay")) {
      errno = ErrorOf(g_fault.what);
      return -1;
    }
    usleep(200'000);
  }
  const int result = static_cast<int>(syscall(number, fd));
  if (meant && result == 0 && g_synced[0] != 0) Keep(path);
  return result;
}

// Of a write of `size` bytes: how many are written; -1: it fails.
ssize_t Allowed(int fd, size_t size) {
  char path[4096];
  if (!PathOf(fd, path) || !IsFaulty("write")) return static_cast<ssize_t>(size);
  if (Is("short")) return size > 1 ? static_cast<ssize_t>(size / 2) : 1;
  errno = ErrorOf(g_fault.what);
  return -1;
}

// Of a file that is to be opened by this name.
int Open(int folder, const char* path, int flags, mode_t mode) {
  const bool below = g_dir[0] == 0 || path[0] != '/' || strncmp(path, g_dir, strlen(g_dir)) == 0;
  if (below && IsFaulty("open")) {
    errno = ErrorOf(g_fault.what);
    return -1;
  }
  return static_cast<int>(syscall(SYS_openat, folder, path, flags, mode));
}

bool FailsToRename(const char* to) {
  if (strncmp(to, g_dir, strlen(g_dir)) != 0 || !IsFaulty("rename")) return false;
  errno = ErrorOf(g_fault.what);
  return true;
}

mode_t ModeOf(int flags, va_list more) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
}

}  // namespace

extern "C" {

int fsync(int fd) { return Sync(fd, SYS_fsync); }
int fdatasync(int fd) { return Sync(fd, SYS_fdatasync); }

ssize_t write(int fd, const void* bytes, size_t size) {
  const ssize_t allowed = Allowed(fd, size);
  return allowed < 0 ? -1 : syscall(SYS_write, fd, bytes, allowed);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  const ssize_t allowed = Allowed(fd, size);
  return allowed < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, allowed, offset);
}

ssize_t pwrite64(int fd, const void* bytes, size_t size, off_t offset) {
  return pwrite(fd, bytes, size, offset);
}

// Paths are asked for only where reads are to fail: there are very many.
ssize_t read(int fd, void* bytes, size_t size) {
  char path[4096];
  if (strcmp(g_fault.which, "read") != 0 || !PathOf(fd, path) || !IsFaulty("read"))
    return syscall(SYS_read, fd, bytes, size);
  errno = ErrorOf(g_fault.what);
  return -1;
}

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  return Open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  return Open(folder, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = ModeOf(flags, more);
  va_end(more);
  return Open(AT_FDCWD, path, flags, mode);
}

int rename(const char* from, const char* to) noexcept {
  return FailsToRename(to) ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}

int renameat2(int from_folder, const char* from, int folder, const char* to,
              unsigned int flags) noexcept {
  if (FailsToRename(to)) return -1;
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, folder, to, flags));
}

// With its six parameters, which are all pointers.
int accept4(int fd, struct sockaddr* peer, socklen_t* size, int flags) {
  if (IsFaulty("accept")) {
    errno = ErrorOf(g_fault.what);
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, fd, peer, size, flags));
}

int posix_spawnp(pid_t* pid, const char* file, ...) {
  if (IsFaulty("spawn")) return ErrorOf(g_fault.what);
  va_list more;
  va_start(more, file);
  void* rest[4];
  for (void*& each : rest) each = va_arg(more, void*);
  va_end(more);
  using Spawn = int (*)(pid_t*, const char*, void*, void*, void*, void*);
  static const auto next = reinterpret_cast<Spawn>(dlsym(RTLD_NEXT, "posix_spawnp"));
  return next(pid, file, rest[0], rest[1], rest[2], rest[3]);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) noexcept {
  if (IsFaulty("thread")) return ErrorOf(g_fault.what);
  static const auto next =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}

void* malloc(size_t size) {
  if (IsFaulty("malloc")) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(size);
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += Ahead();
  return result;
}

int gettimeofday(struct timeval* time, void*) noexcept {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* where) noexcept {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where != nullptr) *where = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"

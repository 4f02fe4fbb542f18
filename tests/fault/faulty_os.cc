// An operating system that fails, laid over snugd by LD_PRELOAD: calls that fail or come short,
// files of which only what was synced is left, a wall clock that jumps. Other programs that inherit
// it are left alone.
//
//   FAULTY_DIR=DIR        only files below it are meant
//   FAULTY_CALL=WHICH:WHAT@N[+]
//                         WHICH: sync (fsync, fdatasync), write (write, pwrite), malloc
//                         WHAT: EIO, ENOSPC, EDQUOT, EINTR, short (half of a write), null (malloc),
//                         delay (200 ms)
//                         the Nth such call; with + all from it on
//   FAULTY_SYNCED=DIR     has a copy of each file as it was last synced, / in its name as %
//   FAULTY_CLOCK=FILE     eight bytes, seconds by which the wall clock is ahead
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

bool g_snugd = false;
Fault g_fault;
char g_dir[4096] = "", g_synced[4096] = "";
const volatile int64_t* g_ahead = nullptr;
std::atomic<long> g_calls{0};

int64_t Ahead() { return g_ahead == nullptr ? 0 : *g_ahead; }

__attribute__((constructor)) void SetUp() {
  char program[4096] = "";
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return;
  const char* slash = strrchr(program, '/');
  if (slash == nullptr || strncmp(slash, "/snugd", 6) != 0) return;
  if (const char* dir = getenv("FAULTY_DIR")) snprintf(g_dir, sizeof g_dir, "%s", dir);
  if (const char* synced = getenv("FAULTY_SYNCED"))
    snprintf(g_synced, sizeof g_synced, "%s", synced);
  if (const char* call = getenv("FAULTY_CALL")) {
    char on = 0;
    if (sscanf(call, "%15[^:]:%15[^@]@%ld%c", g_fault.which, g_fault.what, &g_fault.from, &on) < 3)
      abort();
    g_fault.on = on == '+';
  }
  if (const char* clock = getenv("FAULTY_CLOCK")) {
    const int fd = open(clock, O_RDONLY | O_CLOEXEC);
    void* at = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    if (fd < 0 || at == MAP_FAILED) abort();
    g_ahead = static_cast<const int64_t*>(at);
  }
  g_snugd = true;
}

// Whether this is a call that is to fail: counts it.
bool IsFaulty(const char* which) {
  if (!g_snugd || strcmp(g_fault.which, which) != 0) return false;
  const long call = ++g_calls;
  return g_fault.on ? call >= g_fault.from : call == g_fault.from;
}

int ErrorOf(const char* what) {
  if (strcmp(what, "EIO") == 0) return EIO;
  if (strcmp(what, "ENOSPC") == 0) return ENOSPC;
  if (strcmp(what, "EDQUOT") == 0) return EDQUOT;
  return EINTR;
}

bool Is(const char* what) { return strcmp(g_fault.what, what) == 0; }

// The path of a file that is meant; false: it is none.
bool PathOf(int fd, char (&path)[4096]) {
  if (!g_snugd || g_dir[0] == 0) return false;
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return false;
  path[size] = 0;
  return strncmp(path, g_dir, strlen(g_dir)) == 0;
}

// By calls of the kernel: those of the library are ours.
void Keep(const char* path) {
  char name[8192], aside[8300];
  int end = snprintf(name, sizeof name, "%s/", g_synced);
  for (const char* c = path + strlen(g_dir); *c != 0 && end < 8000; ++c)
    name[end++] = *c == '/' ? '%' : *c;
  name[end] = 0;
  snprintf(aside, sizeof aside, "%s.aside", name);
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

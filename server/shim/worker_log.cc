#include "server/shim/worker_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "server/failpoint.h"

namespace snug::shim {
namespace {

constexpr int kCopyRounds = 64;  // Of a buffer: then the caller looks after other things.

int64_t Milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000} + now.tv_nsec / 1'000'000;
}

}  // namespace

WorkerLog::WorkerLog(std::string path, WorkerLogLimits limits)
    : path_(std::move(path)),
      limits_(limits),
      allowed_(limits.burst_bytes),
      refilled_ms_(Milliseconds()) {
  Open();
}

WorkerLog::~WorkerLog() {
  Note();
  if (fd_ >= 0) close(fd_);
}

void WorkerLog::Open() {
  fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat status {};
  written_ = fd_ >= 0 && fstat(fd_, &status) == 0 ? status.st_size : 0;
}

bool WorkerLog::Copy(int pipe) {
  char buffer[64 << 10];
  for (int round = 0; round < kCopyRounds; ++round) {
    const ssize_t got = read(pipe, buffer, sizeof buffer);
    if (got == 0) return false;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    Take(buffer, got);
  }
  return true;
}

void WorkerLog::Refill() {
  const int64_t now = Milliseconds(),
                earned = (now - refilled_ms_) * limits_.bytes_per_second / 1000;
  if (earned == 0) return;
  refilled_ms_ = now;
  allowed_ = std::min(limits_.burst_bytes, allowed_ + earned);
}

void WorkerLog::Take(const char* bytes, int64_t count) {
  Refill();
  if (allowed_ < count) {
    dropped_ += count;
    return;
  }
  allowed_ -= count;
  Note();
  if (!Append(bytes, count)) dropped_ += count;
}

// Where bytes are missing.
void WorkerLog::Note() {
  if (dropped_ == 0) return;
  char text[96];
  const int size = snprintf(text, sizeof text, "\n[snug-shim: %lld bytes of output are left out]\n",
                            static_cast<long long>(dropped_));
  if (Append(text, size)) dropped_ = 0;
}

// Whole, or false: the disk has no room. What fits of it stays.
bool WorkerLog::Append(const char* bytes, int64_t count) {
  if (written_ + count > limits_.file_bytes && written_ > 0) {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
    FAILPOINT("log.rename");
    rename(path_.c_str(), (path_ + ".1").c_str());
    FAILPOINT("log.renamed");
  }
  if (fd_ < 0) Open();
  if (fd_ < 0) return false;
  const ssize_t wrote = TEMP_FAILURE_RETRY(write(fd_, bytes, static_cast<size_t>(count)));
  written_ += std::max<ssize_t>(wrote, 0);
  return wrote == count;
}

}  // namespace snug::shim

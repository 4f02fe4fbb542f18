#include "server/node/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

namespace snug::server {
namespace {

constexpr int kReserve = 64;
constexpr absl::Duration kNoDescriptorsPause = absl::Milliseconds(50);
constexpr int kPerLoan = 8;  // A folder, two files, a pipe's ends, a process, and a start's own.

class Reserve {
 public:
  void Take(int limit) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    limit_ = limit;
    wanted_ = std::min(kReserve, limit / 4);
    Fill(wanted_);
  }

  int first() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return limit_ - wanted_;
  }

  void Lend() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    ++loans_;
    for (int i = 0; i < kPerLoan && !held_.empty(); ++i) {
      close(held_.back());
      held_.pop_back();
    }
  }

  void End() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    --loans_;
    Fill(wanted_ - kPerLoan * loans_);
  }

 private:
  // What somebody else holds just now is taken back at the end of a later loan.
  void Fill(int wanted) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    while (static_cast<int>(held_.size()) < wanted) {
      const int source = held_.empty() ? open("/dev/null", O_RDONLY | O_CLOEXEC) : held_.front();
      if (source < 0) return;
      const int fd = fcntl(source, F_DUPFD_CLOEXEC, limit_ - wanted_);
      if (held_.empty()) close(source);
      if (fd < 0) return;
      held_.push_back(fd);
    }
  }

  mutable absl::Mutex mutex_;
  int limit_ ABSL_GUARDED_BY(mutex_) = kMaxDescriptors;
  int wanted_ ABSL_GUARDED_BY(mutex_) = 0;
  int loans_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int> held_ ABSL_GUARDED_BY(mutex_);
};

// The limit is the process's, and so is this.
Reserve& TheReserve() {
  static auto* reserve = new Reserve();
  return *reserve;
}

}  // namespace

int ReserveDescriptors() {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, kMaxDescriptors);
  setrlimit(RLIMIT_NOFILE, &files);
  TheReserve().Take(static_cast<int>(files.rlim_cur));
  return static_cast<int>(files.rlim_cur);
}

bool IsSpareDescriptor(int fd) { return fd < TheReserve().first(); }

int AcceptOrPause(int listener, int flags) {
  const int fd = accept4(listener, nullptr, nullptr, flags);
  if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM))
    return fd;
  const int error = errno;
  absl::SleepFor(kNoDescriptorsPause);
  errno = error;
  return -1;
}

DescriptorLoan::DescriptorLoan() { TheReserve().Lend(); }
DescriptorLoan::~DescriptorLoan() { TheReserve().End(); }

}  // namespace snug::server

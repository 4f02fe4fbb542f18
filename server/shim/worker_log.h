// worker.log and worker.log.1: the last of what a worker has printed, at most 64 MiB of it, written
// no faster than a disk and its other users bear. What is dropped is counted in the log itself.
#ifndef SERVER_SHIM_WORKER_LOG_H_
#define SERVER_SHIM_WORKER_LOG_H_

#include <cstdint>
#include <string>

namespace snug::shim {

struct WorkerLogLimits {
  int64_t file_bytes = 32 << 20;       // Then it becomes worker.log.1, and that one goes.
  int64_t burst_bytes = 80 << 20;      // At once, more than both files hold,
  int64_t bytes_per_second = 1 << 20;  // and this afterwards.
};

class WorkerLog {
 public:
  explicit WorkerLog(std::string path, WorkerLogLimits limits = {});
  ~WorkerLog();
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  // Words of the shim's own.
  void Say(const std::string& text) { Append(text.data(), static_cast<int64_t>(text.size())); }

  // Takes what is in the pipe now, which must not block. False: nobody writes to it any more.
  bool Copy(int pipe);

 private:
  void Take(const char* bytes, int64_t count);
  void Note();
  bool Append(const char* bytes, int64_t count);
  void Open();
  void Refill();

  const std::string path_;
  const WorkerLogLimits limits_;
  int fd_ = -1;
  int64_t written_ = 0;  // To this file.
  int64_t allowed_ = 0;  // Bytes that may be written now.
  int64_t refilled_ms_ = 0;
  int64_t dropped_ = 0;  // Since the last note of it.
};

}  // namespace snug::shim

#endif  // SERVER_SHIM_WORKER_LOG_H_

// audit.log in the state folder: one line of JSON for each call that may change something, written
// when it is answered, refused ones as well. Who could not be told at all has changed nothing, and
// is not in it.
#ifndef SERVER_API_AUDIT_H_
#define SERVER_API_AUDIT_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/job/principal.h"

namespace snug::server {

struct AuditedCall {
  Principal who;
  std::string method;
  std::string resource;  // tenants/TENANT/jobs/ID, tokens/ID; what the call named, where it failed.
};

class AuditLog {
 public:
  explicit AuditLog(std::string path, int64_t file_bytes = int64_t{32} << 20)
      : path_(std::move(path)), file_bytes_(file_bytes) {}
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // A line that cannot be written is in the daemon's own log.
  void Write(const AuditedCall& call, const absl::Status& status, absl::Time now)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  bool Append(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const int64_t file_bytes_;  // Then it becomes audit.log.1, and that one goes.
  absl::Mutex mutex_;
  int fd_ ABSL_GUARDED_BY(mutex_) = -1;
  int64_t written_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace snug::server

#endif  // SERVER_API_AUDIT_H_

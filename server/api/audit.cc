#include "server/api/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/log.h"

namespace snug::server {
namespace {

// As it is written: the keys in the order in which a person reads them.
std::string LineOf(const AuditedCall& call, const absl::Status& status, absl::Time now) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone())},
      {"principal", call.who.name()},
      {"method", call.method},
      {"resource", call.resource},
      {"status", absl::StatusCodeToString(status.code())}};
  if (!call.who.credential.empty()) line["credential"] = call.who.credential;
  if (!status.ok()) line["reason"] = ReasonOf(status);
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

AuditLog::~AuditLog() {
  if (fd_ >= 0) close(fd_);
}

void AuditLog::Write(const AuditedCall& call, const absl::Status& status, absl::Time now) {
  const std::string line = LineOf(call, status, now);
  absl::MutexLock lock(&mutex_);
  if (Append(line)) return;
  const std::string why = strerror(errno);
  spdlog::error("cannot write {}: {}: {}", path_, why, line.substr(0, line.size() - 1));
}

bool AuditLog::Append(const std::string& line) {
  const auto bytes = static_cast<int64_t>(line.size());
  if (fd_ < 0) Open();
  if (fd_ >= 0 && written_ > 0 && written_ + bytes > file_bytes_) {
    if (FAILS_AT("audit.rename")) return false;
    if (rename(path_.c_str(), (path_ + ".1").c_str()) != 0) return false;
    FAILPOINT("audit.renamed");
    Open();
  }
  if (fd_ < 0) return false;
  const ssize_t put = TEMP_FAILURE_RETRY(write(fd_, line.data(), line.size()));
  if (put > 0) written_ += put;
  return put == static_cast<ssize_t>(line.size());
}

void AuditLog::Open() {
  if (fd_ >= 0) close(fd_);
  fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  struct stat about {};
  written_ = fd_ >= 0 && fstat(fd_, &about) == 0 ? about.st_size : 0;
}

}  // namespace snug::server

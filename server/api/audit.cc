#include "server/api/audit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/log.h"

namespace snug::server {
namespace {

bool IsPlain(char c) { return absl::ascii_isprint(c) && c != '"' && c != '\\'; }

// `,"key":"value"`. Nearly every value stands for itself.
void AddField(absl::string_view key, const std::string& value, std::string& line) {
  if (absl::c_all_of(value, IsPlain)) {
    absl::StrAppend(&line, ",\"", key, "\":\"", value, "\"");
    return;
  }
  const std::string quoted =
      nlohmann::json(value).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  absl::StrAppend(&line, ",\"", key, "\":", quoted);
}

// The keys in the order in which a person reads them. No document for the whole line: it costs
// more, and each submit waits for its line.
std::string LineOf(const AuditedCall& call, const absl::Status& status, absl::Time now) {
  std::string line = absl::StrCat(
      "{\"time\":\"", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", now, absl::UTCTimeZone()), "\"");
  AddField("principal", call.who.name(), line);
  AddField("method", call.method, line);
  AddField("resource", call.resource, line);
  AddField("status", absl::StatusCodeToString(status.code()), line);
  if (!call.who.credential.empty()) AddField("credential", call.who.credential, line);
  if (!status.ok()) AddField("reason", ReasonOf(status), line);
  return line + "}\n";
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

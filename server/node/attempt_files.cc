#include "server/node/attempt_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/node/json_file.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxExitBytes = 4 << 10;
constexpr program::JsonLimits kExitLimits = {.bytes = kMaxExitBytes, .values = 100, .depth = 2};
constexpr program::JsonLimits kResultLimits = {.bytes = 1 << 20, .depth = 16};
constexpr int kExitSchema = 2;  // As the shim writes it.

int64_t IntegerIn(const nlohmann::json& object, const char* key, int64_t absent) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : absent;
}

bool Says(const nlohmann::json& object, const char* key, const std::string& wanted) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() && *found == wanted;
}

}  // namespace

std::string AttemptDir(const std::string& state_dir, const std::string& job, int epoch) {
  return absl::StrCat(state_dir, "/jobs/", job, "/attempts/", epoch);
}

std::string CheckpointsDir(const std::string& state_dir, const std::string& job) {
  return absl::StrCat(state_dir, "/jobs/", job, "/checkpoints");
}

absl::StatusOr<int> TakeAttemptLock(const std::string& attempt_dir) {
  const std::string path = attempt_dir + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(absl::StrCat(path, " is held: its shim lives"));
}

absl::StatusOr<pid_t> ReadShimPid(const std::string& attempt_dir) {
  const std::string path = attempt_dir + "/lock";
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxExitBytes);
  if (absl::IsNotFound(text.status())) return 0;  // The lock is made before the shim is started.
  RETURN_IF_ERROR(text.status());
  const absl::string_view number = absl::StripAsciiWhitespace(*text);
  pid_t pid = 0;
  if (number.empty() || (absl::SimpleAtoi(number, &pid) && pid > 0)) return pid;
  return absl::DataLossError(absl::StrCat(path, " does not hold the number of a process"));
}

pid_t ShimPid(const std::string& attempt_dir) { return ReadShimPid(attempt_dir).value_or(0); }

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t limit) {
  // O_NONBLOCK: opening a FIFO that somebody has put there must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 && errno == ENOENT) return absl::NotFoundError(absl::StrCat("no ", path));
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const absl::Cleanup close_it = [fd] { close(fd); };
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    return absl::DataLossError(absl::StrCat(path, " is no file"));
  std::string text;
  char buffer[4096];
  ssize_t got = 0;
  while (static_cast<int64_t>(text.size()) <= limit && (got = read(fd, buffer, sizeof buffer)) > 0)
    text.append(buffer, static_cast<size_t>(got));
  if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  if (static_cast<int64_t>(text.size()) > limit)
    return absl::DataLossError(absl::StrCat(path, " has more than ", limit, " bytes"));
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  const std::string aside = path + ".tmp";
  const int fd = open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", aside));
  size_t written = 0;
  ssize_t wrote = 0;
  while (written < bytes.size() && (wrote = TEMP_FAILURE_RETRY(write(fd, bytes.data() + written,
                                                                     bytes.size() - written))) > 0)
    written += static_cast<size_t>(wrote);
  const int error = written == bytes.size() ? 0 : errno;
  close(fd);
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", aside));
  if (FAILS_AT("file.rename")) return absl::ErrnoToStatus(ENOSPC, "a failed rename");
  const bool renamed = rename(aside.c_str(), path.c_str()) == 0;
  FAILPOINT("file.renamed");
  if (renamed) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::optional<ExitRecord>> ReadExitRecord(const std::string& attempt_dir,
                                                         const AttemptIdentity& identity) {
  const std::string path = attempt_dir + "/exit.json";
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxExitBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  ASSIGN_OR_RETURN(const nlohmann::json json, JsonOfText(*text, path, kExitLimits));
  if (!json.is_object() || IntegerIn(json, "schema", 0) != kExitSchema)
    return absl::DataLossError(absl::StrCat(path, " is no exit record of this version"));
  if (!Says(json, "instance", identity.instance) || !Says(json, "job", identity.job) ||
      !Says(json, "nonce", identity.nonce) || IntegerIn(json, "epoch", 0) != identity.epoch)
    return absl::DataLossError(absl::StrCat(path, " is of another attempt"));
  ExitRecord record;
  record.pid = IntegerIn(json, "pid", 0);
  record.exit_code = static_cast<int>(IntegerIn(json, "exit_code", -1));
  record.signal = static_cast<int>(IntegerIn(json, "signal", 0));
  record.oom_kills = IntegerIn(json, "oom_kills", 0);
  const auto cgroup = json.find("cgroup");
  if (cgroup != json.end() && cgroup->is_string()) record.cgroup = cgroup->get<std::string>();
  record.text = *std::move(text);
  return record;
}

absl::StatusOr<std::optional<v1::WorkerResult>> ReadResult(const std::string& attempt_dir) {
  const std::string path = attempt_dir + "/result.json";
  v1::WorkerResult result;
  const absl::Status read = ReadJsonMessage(path, kResultLimits, &result);
  if (absl::IsNotFound(read)) return std::nullopt;
  RETURN_IF_ERROR(read);
  return result;
}

}  // namespace snug::server

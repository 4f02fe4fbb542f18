#include "server/node/attempt_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int64_t kMaxExitBytes = 4 << 10;
constexpr int64_t kMaxResultBytes = 1 << 20;

int64_t IntegerIn(const nlohmann::json& object, const char* key, int64_t absent) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : absent;
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

bool ShimLives(const std::string& attempt_dir) {
  const int fd = open((attempt_dir + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;  // It is made before the shim is started.
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  close(fd);
  return !free;
}

pid_t ShimPid(const std::string& attempt_dir) {
  absl::StatusOr<std::string> text = ReadSmallFile(attempt_dir + "/lock", kMaxExitBytes);
  pid_t pid = 0;
  if (!text.ok() || !absl::SimpleAtoi(absl::StripAsciiWhitespace(*text), &pid)) return 0;
  return pid;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat("no ", path));
  std::string text(static_cast<size_t>(limit) + 1, '\0');
  file.read(text.data(), limit + 1);
  text.resize(static_cast<size_t>(file.gcount()));
  if (static_cast<int64_t>(text.size()) > limit)
    return absl::DataLossError(absl::StrCat(path, " has more than ", limit, " bytes"));
  return text;
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path + ".tmp", std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || rename((path + ".tmp").c_str(), path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ExitRecord>> ReadExitRecord(const std::string& attempt_dir,
                                                         const std::string& job, int epoch) {
  const std::string path = attempt_dir + "/exit.json";
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxExitBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  const nlohmann::json json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || IntegerIn(json, "schema", 0) != 1)
    return absl::DataLossError(absl::StrCat(path, " is no exit record"));
  const auto named = json.find("job");
  if (named == json.end() || *named != job || IntegerIn(json, "epoch", 0) != epoch)
    return absl::DataLossError(absl::StrCat(path, " is of another attempt"));
  ExitRecord record;
  record.pid = IntegerIn(json, "pid", 0);
  record.exit_code = static_cast<int>(IntegerIn(json, "exit_code", -1));
  record.signal = static_cast<int>(IntegerIn(json, "signal", 0));
  record.text = *std::move(text);
  return record;
}

absl::StatusOr<std::optional<v1::WorkerResult>> ReadResult(const std::string& attempt_dir) {
  const std::string path = attempt_dir + "/result.json";
  absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxResultBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  RETURN_IF_ERROR(text.status());
  v1::WorkerResult result;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // The worker may be of a newer version than this daemon.
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &result, options);
  if (!parsed.ok())
    return absl::DataLossError(absl::StrCat(path, ": ", std::string(parsed.message())));
  return result;
}

}  // namespace snug::server

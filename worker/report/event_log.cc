#include "worker/report/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "tensorboard/event.pb.h"
#include "worker/checkpoint/new_file.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/json.h"
#include "worker/report/crc32c.h"

namespace snug::report {
namespace {

using nlohmann::ordered_json;

constexpr char kFileVersion[] = "brain.Event:2";
constexpr char kEvaluation[] = "eval_";
constexpr char kStep[] = "global_step";
constexpr char kTime[] = "time";
// A line is an object of some dozens of numbers.
constexpr program::JsonLimits kLineLimits = {.depth = 4};

template <typename Number>
std::string LittleEndian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(number); ++i)
    bytes.push_back(static_cast<char>((number >> (8 * i)) & 0xff));
  return bytes;
}

std::string MaskedCrc(std::string_view bytes) {
  constexpr uint32_t kMaskDelta = 0xa282ead8;
  const uint32_t crc = Crc32c(bytes);
  return LittleEndian(((crc >> 15) | (crc << 17)) + kMaskDelta);
}

// The series that a number of a line belongs to; empty: it is of none.
std::string TagOf(const std::string& key, bool evaluation) {
  if (key == kStep || key == kTime) return "";
  if (absl::StartsWith(key, kEvaluation))
    return absl::StrCat("eval/", key.substr(sizeof(kEvaluation) - 1));
  return evaluation ? "" : absl::StrCat("train/", key);
}

tensorboard::Event EventOf(const ordered_json& line) {
  tensorboard::Event event;
  event.set_step(line[kStep].get<int64_t>());
  const auto time = line.find(kTime);
  if (time != line.end() && time->is_number()) event.set_wall_time(time->get<double>());
  const bool evaluation = line.contains("eval_loss");
  for (const auto& [key, number] : line.items()) {
    const std::string tag = TagOf(key, evaluation);
    if (tag.empty() || !number.is_number()) continue;
    tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
    value.set_tag(tag);
    value.set_simple_value(number.get<float>());
  }
  return event;
}

}  // namespace

absl::StatusOr<EventLog> EventLog::Create(const std::string& path,
                                          const std::string& metrics_file) {
  const int fd =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return checkpoint::WriteError(errno, absl::StrCat("cannot create ", path));
  EventLog log(path, metrics_file, fd);
  tensorboard::Event version;
  version.set_wall_time(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  version.set_file_version(kFileVersion);
  RETURN_IF_ERROR(log.AddRecord(version.SerializeAsString()));
  RETURN_IF_ERROR(log.Follow());
  return log;
}

EventLog::EventLog(std::string path, std::string metrics_file, int fd)
    : path_(std::move(path)), metrics_file_(std::move(metrics_file)), fd_(fd) {}

EventLog::EventLog(EventLog&& other) noexcept
    : path_(std::move(other.path_)),
      metrics_file_(std::move(other.metrics_file_)),
      fd_(std::exchange(other.fd_, -1)),
      followed_bytes_(other.followed_bytes_) {}

EventLog::~EventLog() {
  if (fd_ >= 0) close(fd_);
}

absl::Status EventLog::Follow() {
  ASSIGN_OR_RETURN(const checkpoint::OpenFile file,
                   checkpoint::OpenFile::Open(metrics_file_, checkpoint::Links::kRefuse));
  std::string line;
  return file.ForEachPiece(
      followed_bytes_, file.bytes() - followed_bytes_, [&](std::string_view piece) -> absl::Status {
        for (size_t end = 0; (end = piece.find('\n')) != std::string_view::npos;) {
          line.append(piece.substr(0, end));
          RETURN_IF_ERROR(AddLine(line));
          followed_bytes_ += static_cast<int64_t>(line.size()) + 1;
          line.clear();
          piece.remove_prefix(end + 1);
        }
        line.append(piece);
        return absl::OkStatus();
      });
}

absl::Status EventLog::AddLine(const std::string& line) {
  // ParseJson would not keep the order of the numbers.
  const bool within = program::CheckJson(line, metrics_file_, kLineLimits).ok();
  const ordered_json json =
      within ? ordered_json::parse(line, nullptr, /*allow_exceptions=*/false) : ordered_json();
  const auto step = json.is_object() ? json.find(kStep) : json.end();
  if (step == json.end() || !step->is_number_integer())
    return absl::DataLossError(
        absl::StrCat(metrics_file_, " has no line of metrics behind byte ", followed_bytes_));
  return AddRecord(EventOf(json).SerializeAsString());
}

// One call to the system, so that a kill rarely tears a record; a reader waits for the rest of one.
absl::Status EventLog::AddRecord(const std::string& event) {
  const std::string length = LittleEndian(static_cast<uint64_t>(event.size()));
  const std::string record = absl::StrCat(length, MaskedCrc(length), event, MaskedCrc(event));
  ssize_t written = 0;
  do {
    written = write(fd_, record.data(), record.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(record.size())) return absl::OkStatus();
  // A regular file takes less than all of it only when the disk is full.
  const int cause = written < 0 ? errno : ENOSPC;
  return checkpoint::WriteError(cause, absl::StrCat("cannot write ", path_));
}

}  // namespace snug::report

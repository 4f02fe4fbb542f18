#include "server/upload/uploads.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/status_macros.h"
#include "server/data/sha256.h"
#include "server/failpoint.h"
#include "server/job/errors.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdPrefix = "file-";
constexpr size_t kIdDigits = 24;
constexpr size_t kHashDigits = 64;
constexpr const char* kRecord = "file.pb";
constexpr absl::Duration kPartsStay = absl::Hours(24);

bool IsHex(absl::string_view text) {
  return absl::c_all_of(
      text, [](unsigned char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
}

bool IsHash(absl::string_view text) { return text.size() == kHashDigits && IsHex(text); }

// Its endings say what a file holds, and are all of its name that gets into a path: at most two,
// of letters and digits.
std::string EndingsOf(absl::string_view filename) {
  std::string endings;
  for (int i = 0; i < 2; ++i) {
    const size_t dot = filename.rfind('.');
    if (dot == absl::string_view::npos || dot == 0) break;
    const absl::string_view ending = filename.substr(dot + 1);
    if (ending.empty() || ending.size() > 8 || !absl::c_all_of(ending, absl::ascii_isalnum)) break;
    endings = absl::StrCat(".", absl::AsciiStrToLower(ending), endings);
    filename = filename.substr(0, dot);
  }
  return endings;
}

std::string DiskName(const v1::File& file) {
  return absl::StrCat("dataset", EndingsOf(file.filename()));
}

absl::Status CheckHeader(const v1::UploadHeader& header) {
  const std::string& name = header.filename();
  std::vector<Violation> found;
  const bool plain = absl::c_none_of(
      name, [](unsigned char c) { return c == '/' || c == '\\' || c < 0x20 || c == 0x7f; });
  if (name.empty() || name.size() > kMaxFilenameBytes || !plain || name[0] == '.')
    found.push_back({"header.filename",
                     absl::StrCat("must be a name of 1 to ", kMaxFilenameBytes,
                                  " bytes, no path, and not begin with a dot"),
                     "BAD_FIELD"});
  if (!header.sha256().empty() && !IsHash(header.sha256()))
    found.push_back({"header.sha256", "must be 64 hexadecimal digits in lower case", "BAD_FIELD"});
  if (header.offset() != 0 && header.sha256().empty())
    found.push_back({"header.offset", "needs sha256, by which it is known", "BAD_FIELD"});
  return found.empty() ? absl::OkStatus() : InvalidRequest(found);
}

absl::Status NoFile(const std::string& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("no file \"", id, "\"")), "FILE_NOT_FOUND");
}

absl::StatusOr<v1::File> ReadRecord(const std::string& folder) {
  std::ifstream stream(absl::StrCat(folder, "/", kRecord), std::ios::binary);
  v1::File file;
  if (!stream || !file.ParseFromIstream(&stream))
    return absl::NotFoundError(absl::StrCat("no record in ", folder));
  return file;
}

absl::Status Sync(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot open an upload");
  const int failed = FAILS_AT("upload.sync") ? (errno = EIO) : fsync(fd);
  const int error = errno;
  close(fd);
  return failed ? absl::ErrnoToStatus(error, "fsync of an upload") : absl::OkStatus();
}

int64_t SizeOf(const std::string& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : 0;
}

// What broke off long ago, and whatever a daemon that was killed left half published.
void RemoveOldParts(const std::string& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    struct stat status {};
    if (absl::StartsWith(name, kIdPrefix) || lstat(entry.path().c_str(), &status) != 0) continue;
    if (absl::Now() - absl::TimeFromTimespec(status.st_mtim) > kPartsStay)
      fs::remove_all(entry.path(), error);
  }
}

absl::Status CheckRoom(const std::string& folder) {
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) != 0) return absl::OkStatus();
  if (static_cast<double>(disk.f_bavail) > kDiskKept * static_cast<double>(disk.f_blocks))
    return absl::OkStatus();
  return WithReason(absl::ResourceExhaustedError(
                        "the daemon's disk has no room for uploads: delete files or ended jobs"),
                    "DISK_FULL");
}

}  // namespace

bool IsFileId(absl::string_view text) {
  return absl::ConsumePrefix(&text, kIdPrefix) && text.size() == kIdDigits && IsHex(text);
}

Reception::Reception(std::string folder, v1::UploadHeader header, std::string part, int fd)
    : folder_(std::move(folder)),
      header_(std::move(header)),
      part_(std::move(part)),
      fd_(fd),
      bytes_(header_.offset()),
      resumable_(!header_.sha256().empty()) {}

Reception::~Reception() {
  if (fd_ >= 0) close(fd_);
  if (!resumable_) unlink(part_.c_str());
}

absl::Status Reception::Append(absl::string_view content) {
  if (bytes_ + static_cast<int64_t>(content.size()) > kMaxFileBytes)
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the file is larger than ", kMaxFileBytes, " bytes, the most there is")),
                      "FILE_TOO_LARGE");
  RETURN_IF_ERROR(CheckRoom(folder_));
  while (!content.empty()) {
    const ssize_t written = write(fd_, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "cannot keep the upload");
    bytes_ += written;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::File> Reception::Finish() {
  v1::File file;
  file.set_filename(header_.filename());
  file.set_bytes(bytes_);
  ASSIGN_OR_RETURN(const std::string hash, Sha256File(part_));
  file.set_sha256(hash);
  if (!header_.sha256().empty() && header_.sha256() != hash) {
    resumable_ = false;
    return WithReason(absl::DataLossError(absl::StrCat("the content has the SHA-256 ", hash,
                                                       ", not ", header_.sha256())),
                      "WRONG_CONTENT");
  }
  file.set_id(absl::StrCat(
      kIdPrefix, Sha256Hex(absl::StrCat(hash, "\n", file.filename())).substr(0, kIdDigits)));
  *file.mutable_create_time() =
      google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(absl::ToUnixMicros(absl::Now()));
  RETURN_IF_ERROR(Publish(file));
  return ReadRecord(absl::StrCat(folder_, "/", file.id()));
}

absl::Status Reception::Publish(const v1::File& file) const {
  const std::string made = absl::StrCat(folder_, "/new-", RandomHex(16));
  const std::string place = absl::StrCat(folder_, "/", file.id());
  if (mkdir(made.c_str(), 0700) != 0)
    return absl::ErrnoToStatus(errno, "cannot make the upload's folder");
  const std::string record = absl::StrCat(made, "/", kRecord);
  const std::string content = absl::StrCat(made, "/", DiskName(file));
  std::ofstream(record, std::ios::binary) << file.SerializeAsString();
  if (FAILS_AT("upload.rename")) return absl::ErrnoToStatus(ENOSPC, "a failed rename");
  if (rename(part_.c_str(), content.c_str()) != 0)
    return absl::ErrnoToStatus(errno, "cannot publish the upload");
  FAILPOINT("upload.renamed");
  for (const std::string& path : {record, content, made}) RETURN_IF_ERROR(Sync(path));
  // There already: it was sent before.
  if (rename(made.c_str(), place.c_str()) != 0) {
    std::error_code ignored;
    const int error = errno;
    fs::remove_all(made, ignored);
    if (error != ENOTEMPTY && error != EEXIST)
      return absl::ErrnoToStatus(error, "cannot publish the upload");
  }
  FAILPOINT("upload.published");
  return Sync(folder_);
}

std::string Uploads::FolderOf(const std::string& owner) const {
  return absl::StrCat(dir_, "/", owner);
}

absl::StatusOr<std::unique_ptr<Reception>> Uploads::Begin(const std::string& owner,
                                                          const v1::UploadHeader& header) const {
  RETURN_IF_ERROR(CheckHeader(header));
  const std::string folder = FolderOf(owner);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::ErrnoToStatus(error.value(), "cannot make a folder for uploads");
  RemoveOldParts(folder);
  if (List(owner).size() >= kMaxFiles)
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          kMaxFiles, " files are kept for you, the most there are: delete some")),
                      "TOO_MANY_FILES");
  const bool resumable = !header.sha256().empty();
  const int64_t there = resumable ? Received(owner, header.sha256()) : 0;
  if (header.offset() != 0 && header.offset() != there)
    return WithReason(
        absl::OutOfRangeError(absl::StrCat("header.offset is ", header.offset(), ", and ", there,
                                           " bytes have been received")),
        "WRONG_OFFSET");
  const std::string part =
      absl::StrCat(folder, "/part-", resumable ? header.sha256() : RandomHex(16));
  const int flags =
      O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND | (header.offset() == 0 ? O_TRUNC : 0);
  const int fd = open(part.c_str(), flags, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, "cannot keep the upload");
  return std::make_unique<Reception>(folder, header, part, fd);
}

int64_t Uploads::Received(const std::string& owner, const std::string& sha256) const {
  return IsHash(sha256) ? SizeOf(absl::StrCat(FolderOf(owner), "/part-", sha256)) : 0;
}

std::vector<v1::File> Uploads::List(const std::string& owner) const {
  std::vector<v1::File> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(FolderOf(owner), error)) {
    if (!IsFileId(entry.path().filename().string())) continue;
    absl::StatusOr<v1::File> file = ReadRecord(entry.path().string());
    if (file.ok()) files.push_back(*std::move(file));
  }
  using google::protobuf::util::TimeUtil;
  absl::c_sort(files, [](const v1::File& a, const v1::File& b) {
    return std::pair(-TimeUtil::TimestampToMicroseconds(a.create_time()), a.id()) <
           std::pair(-TimeUtil::TimestampToMicroseconds(b.create_time()), b.id());
  });
  return files;
}

absl::StatusOr<v1::File> Uploads::Find(const std::string& owner, const std::string& id) const {
  if (!IsFileId(id)) return NoFile(id);
  absl::StatusOr<v1::File> file = ReadRecord(absl::StrCat(FolderOf(owner), "/", id));
  return file.ok() ? file : NoFile(id);
}

absl::StatusOr<std::string> Uploads::PathOf(const std::string& owner, const std::string& id) const {
  ASSIGN_OR_RETURN(const v1::File file, Find(owner, id));
  return absl::StrCat(FolderOf(owner), "/", id, "/", DiskName(file));
}

// Its record's time says when it was last asked for.
absl::StatusOr<std::string> Uploads::PathForJob(const std::string& owner,
                                                const std::string& id) const {
  if (IsFileId(id))
    utimensat(AT_FDCWD, absl::StrCat(FolderOf(owner), "/", id, "/", kRecord).c_str(), nullptr,
              AT_SYMLINK_NOFOLLOW);
  return PathOf(owner, id);
}

absl::StatusOr<bool> Uploads::DeleteUnless(
    const std::string& owner, const std::string& id, absl::Time since,
    const std::function<bool(const std::string& path)>& named) const {
  ASSIGN_OR_RETURN(const std::string path, PathOf(owner, id));
  struct stat record {};
  const std::string file = absl::StrCat(FolderOf(owner), "/", id, "/", kRecord);
  if (lstat(file.c_str(), &record) != 0) return NoFile(id);
  if (absl::TimeFromTimespec(record.st_mtim) >= since || named(path)) return false;
  RETURN_IF_ERROR(Delete(owner, id));
  return true;
}

std::vector<std::string> Uploads::Owners() const {
  std::vector<std::string> owners;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir_, error))
    owners.push_back(entry.path().filename().string());
  absl::c_sort(owners);
  return owners;
}

absl::Status Uploads::Delete(const std::string& owner, const std::string& id) const {
  RETURN_IF_ERROR(Find(owner, id).status());
  // Out of sight at once, and then away.
  const std::string aside = absl::StrCat(FolderOf(owner), "/gone-", RandomHex(16));
  if (rename(absl::StrCat(FolderOf(owner), "/", id).c_str(), aside.c_str()) != 0)
    return errno == ENOENT ? NoFile(id) : absl::ErrnoToStatus(errno, "cannot delete the file");
  FAILPOINT("upload.gone");
  std::error_code error;
  fs::remove_all(aside, error);
  return absl::OkStatus();
}

}  // namespace snug::server

#include "client/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kMaxFiles = 10'000;  // An output folder has about ten.

absl::Status Failed(absl::string_view what, absl::string_view path, int error) {
  return absl::InternalError(absl::StrCat(what, " ", path, ": ", std::strerror(error)));
}

// mkdtemp makes it for its owner alone; what is downloaded is as readable as any file of the user.
void ApplyUmask(const std::string& folder) {
  const mode_t mask = umask(0);
  umask(mask);
  chmod(folder.c_str(), 0777 & ~mask);
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return Failed("cannot open", folder, errno);
  const bool synced = fsync(fd) == 0;
  const int error = errno;
  close(fd);
  return synced ? absl::OkStatus() : Failed("cannot sync", folder, error);
}

}  // namespace

absl::Status CheckRelativePath(absl::string_view path) {
  const auto bad = [&](absl::string_view why) {
    return absl::DataLossError(
        absl::StrCat("the daemon sent a file named \"", path, "\", which ", why));
  };
  if (path.empty() || path.size() > kMaxPathBytes) return bad("is empty or too long");
  if (path.find('\0') != absl::string_view::npos) return bad("has a zero byte in it");
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty()) return bad("is absolute or has an empty part");
    if (part == "." || part == "..") return bad("could lead out of the folder");
  }
  return absl::OkStatus();
}

absl::StatusOr<OutputFolder> OutputFolder::Create(const std::string& directory) {
  std::error_code error;
  fs::path target = fs::absolute(directory, error).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();  // A trailing slash.
  const fs::file_status status = fs::symlink_status(target, error);
  if (fs::exists(status)) {
    if (!fs::is_directory(status)) {
      return absl::AlreadyExistsError(
          absl::StrCat(target.string(), " is there and is no folder; name another"));
    }
    if (!fs::is_empty(target, error) || error) {
      return absl::AlreadyExistsError(absl::StrCat(
          target.string(),
          " is not empty; nothing was written. Name a folder that does not exist yet"));
    }
  }
  fs::create_directories(target.parent_path(), error);
  if (error) {
    return absl::InternalError(
        absl::StrCat("cannot make ", target.parent_path().string(), ": ", error.message()));
  }
  std::string partial = absl::StrCat(target.string(), ".part-XXXXXX");
  if (mkdtemp(partial.data()) == nullptr) return Failed("cannot make", partial, errno);
  return OutputFolder(target.string(), partial);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : directory_(std::move(other.directory_)),
      partial_(std::exchange(other.partial_, "")),
      files_(std::move(other.files_)),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_) {}

OutputFolder::~OutputFolder() {
  if (fd_ >= 0) close(fd_);
  std::error_code ignored;  // A folder named .part-... that stays says itself what it is.
  if (!partial_.empty()) fs::remove_all(partial_, ignored);
}

absl::Status OutputFolder::Begin(const std::string& path, int64_t bytes) {
  RETURN_IF_ERROR(EndFile());
  RETURN_IF_ERROR(CheckRelativePath(path));
  if (files_.size() == kMaxFiles)
    return absl::DataLossError(absl::StrCat("more than ", kMaxFiles, " files"));
  const fs::path full = fs::path(partial_) / path;
  std::error_code error;
  fs::create_directories(full.parent_path(), error);
  if (error)
    return absl::InternalError(
        absl::StrCat("cannot make ", full.parent_path().string(), ": ", error.message()));
  // The folder is ours alone and new: a file that is there already was sent twice.
  fd_ = open(full.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) return Failed("cannot create", full.string(), errno);
  files_.push_back({path, bytes});
  written_ = 0;
  return absl::OkStatus();
}

absl::Status OutputFolder::Append(absl::string_view content) {
  if (content.empty()) return absl::OkStatus();
  if (fd_ < 0) return absl::DataLossError("the daemon sent content before a file's name");
  written_ += static_cast<int64_t>(content.size());
  if (written_ > files_.back().bytes) {
    return absl::DataLossError(absl::StrCat("the daemon sent more of ", files_.back().path,
                                            " than its ", files_.back().bytes, " bytes"));
  }
  while (!content.empty()) {
    const ssize_t n = write(fd_, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot write", files_.back().path, errno);
    content.remove_prefix(n);
  }
  return absl::OkStatus();
}

absl::Status OutputFolder::EndFile() {
  if (fd_ < 0) return absl::OkStatus();
  const bool synced = fsync(fd_) == 0;
  const int error = errno;
  close(std::exchange(fd_, -1));
  if (!synced) return Failed("cannot sync", files_.back().path, error);
  if (written_ != files_.back().bytes) {
    return absl::DataLossError(absl::StrCat("only ", written_, " of ", files_.back().bytes,
                                            " bytes of ", files_.back().path, " came; try again"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> OutputFolder::Read(const std::string& path) {
  RETURN_IF_ERROR(EndFile());
  std::ifstream file(fs::path(partial_) / path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("the daemon sent no ", path));
  return content.str();
}

absl::Status OutputFolder::Replace(const std::string& path, const std::string& content) {
  RETURN_IF_ERROR(EndFile());
  std::error_code error;
  fs::remove(fs::path(partial_) / path, error);
  if (error) return Failed("cannot replace", path, error.value());
  std::erase_if(files_, [&](const File& file) { return file.path == path; });
  RETURN_IF_ERROR(Begin(path, static_cast<int64_t>(content.size())));
  RETURN_IF_ERROR(Append(content));
  return EndFile();
}

absl::Status OutputFolder::Commit() {
  RETURN_IF_ERROR(EndFile());
  if (files_.empty()) return absl::DataLossError("the daemon sent no files");
  ApplyUmask(partial_);
  RETURN_IF_ERROR(SyncFolder(partial_));
  // Replaces an empty folder and fails on one that has been filled meanwhile.
  if (rename(partial_.c_str(), directory_.c_str()) != 0)
    return Failed("cannot rename to", directory_, errno);
  partial_.clear();
  return SyncFolder(fs::path(directory_).parent_path().string());
}

}  // namespace snug::client

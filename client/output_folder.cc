#include "client/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
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

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/file_hash.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 1024;
constexpr size_t kPartialDigits = 12;
constexpr size_t kMaxFiles = 10'000;  // An output folder has about ten.

absl::Status Failed(absl::string_view what, absl::string_view path, int error) {
  return absl::InternalError(absl::StrCat(what, " ", path, ": ", std::strerror(error)));
}

// It is made for its owner alone; what is downloaded is as readable as any file of the user.
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

// A folder of this user's alone, made now or left by an earlier download; with its lock.
absl::StatusOr<int> TakePartial(const std::string& partial) {
  if (mkdir(partial.c_str(), 0700) != 0 && errno != EEXIST)
    return Failed("cannot make", partial, errno);
  const int fd = open(partial.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return Failed("cannot open", partial, errno);
  struct stat folder {};
  const bool ours = fstat(fd, &folder) == 0 && folder.st_uid == geteuid() &&
                    (folder.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (ours && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return absl::FailedPreconditionError(
      absl::StrCat(partial, ours ? " is being filled by another download"
                                 : " is there, and is not yours alone: remove it"));
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

absl::StatusOr<OutputFolder> OutputFolder::Create(const std::string& directory,
                                                  const std::string& what) {
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
  ASSIGN_OR_RETURN(const std::string hash, Sha256Of(what));
  const std::string partial =
      absl::StrCat(target.string(), ".part-", hash.substr(0, kPartialDigits));
  ASSIGN_OR_RETURN(const int lock, TakePartial(partial));
  return OutputFolder(target.string(), partial, lock);
}

OutputFolder::OutputFolder(OutputFolder&& other) noexcept
    : directory_(std::move(other.directory_)),
      partial_(std::exchange(other.partial_, "")),
      lock_(std::exchange(other.lock_, -1)),
      files_(std::move(other.files_)),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_) {}

OutputFolder::~OutputFolder() {
  if (fd_ >= 0) close(fd_);
  if (!partial_.empty()) rmdir(partial_.c_str());  // Stays where something is in it.
  if (lock_ >= 0) close(lock_);
}

bool OutputFolder::has_some() const {
  std::error_code error;
  return !partial_.empty() && !fs::is_empty(partial_, error) && !error;
}

absl::Status OutputFolder::KeepOnly(const std::vector<std::string>& paths) const {
  std::error_code error;
  std::vector<fs::path> others;
  fs::recursive_directory_iterator walk(partial_, error);
  for (; !error && walk != fs::recursive_directory_iterator(); walk.increment(error)) {
    const bool folder = walk->is_directory(error) && !walk->is_symlink(error);
    const std::string path = walk->path().lexically_relative(partial_).string();
    if (!folder && !absl::c_linear_search(paths, path)) others.push_back(walk->path());
  }
  for (const fs::path& other : others)
    if (!error) fs::remove(other, error);
  return error ? Failed("cannot look through", partial_, error.value()) : absl::OkStatus();
}

absl::StatusOr<int64_t> OutputFolder::Begin(const std::string& path, int64_t bytes) {
  RETURN_IF_ERROR(EndFile());
  RETURN_IF_ERROR(CheckRelativePath(path));
  if (files_.size() == kMaxFiles)
    return absl::DataLossError(absl::StrCat("more than ", kMaxFiles, " files"));
  if (absl::c_any_of(files_, [&](const File& file) { return file.path == path; }))
    return absl::DataLossError(absl::StrCat("the daemon sent ", path, " twice"));
  const fs::path full = fs::path(partial_) / path;
  std::error_code error;
  fs::create_directories(full.parent_path(), error);
  if (error)
    return absl::InternalError(
        absl::StrCat("cannot make ", full.parent_path().string(), ": ", error.message()));
  fd_ = open(full.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) return Failed("cannot create", full.string(), errno);
  struct stat file {};
  if (fstat(fd_, &file) != 0 || !S_ISREG(file.st_mode))
    return absl::DataLossError(absl::StrCat(full.string(), " is no file"));
  // Of more than there can be nothing is worth anything.
  const bool fits = file.st_size <= bytes;
  if (!fits && ftruncate(fd_, 0) != 0) return Failed("cannot empty", full.string(), errno);
  files_.push_back({path, bytes});
  written_ = fits ? file.st_size : 0;
  return written_;
}

absl::Status OutputFolder::Append(absl::string_view content) {
  if (content.empty()) return absl::OkStatus();
  if (fd_ < 0) return absl::DataLossError("the daemon sent content before a file's name");
  if (written_ + static_cast<int64_t>(content.size()) > files_.back().bytes) {
    return absl::DataLossError(absl::StrCat("the daemon sent more of ", files_.back().path,
                                            " than its ", files_.back().bytes, " bytes"));
  }
  while (!content.empty()) {
    const ssize_t n = write(fd_, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed("cannot write", files_.back().path, errno);
    written_ += n;
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

absl::Status OutputFolder::Check(const std::string& sha256) {
  if (fd_ < 0) return absl::FailedPreconditionError("no file was begun");
  File& file = files_.back();
  ASSIGN_OR_RETURN(const std::string hash, Sha256OfFile(fd_, file.path));
  file.sha256 = hash;
  if (hash == sha256) return EndFile();
  const std::string path = file.path;
  close(std::exchange(fd_, -1));
  files_.pop_back();
  unlink((fs::path(partial_) / path).c_str());
  return absl::DataLossError(absl::StrCat(path, " has the SHA-256 ", hash, ", and the daemon says ",
                                          sha256, "; try again"));
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
  RETURN_IF_ERROR(Begin(path, static_cast<int64_t>(content.size())).status());
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

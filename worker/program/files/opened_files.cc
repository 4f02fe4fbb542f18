#include "worker/program/files/opened_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace snug::program {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChanged = "snug/input_changed";  // A status's payload.

const OpenedFiles* opened_files = nullptr;  // Null: any file is read.

// Empty: anywhere. Never destroyed: other threads may read to the end.
std::vector<std::string>& ReadFolders() {
  static auto* folders = new std::vector<std::string>();
  return *folders;
}

// However the path is spelled: as files lie, links followed, but for the file itself.
std::string WhereItLies(const std::string& path) {
  std::error_code ignored;
  const fs::path file(path);
  return (fs::weakly_canonical(file.parent_path(), ignored) / file.filename()).string();
}

bool IsForThisProcess(const std::string& path) {
  if (ReadFolders().empty()) return true;
  return absl::c_any_of(ReadFolders(), [where = WhereItLies(path)](const std::string& folder) {
    return absl::StartsWith(where, folder + "/");
  });
}

// Null: it is in none of the folders, and may be anything.
const OpenedFiles* KeptTo(const std::string& path) {
  if (opened_files == nullptr) return nullptr;
  return opened_files->folders.contains(path.substr(0, path.rfind('/'))) ? opened_files : nullptr;
}

absl::Status Changed(const std::string& path) {
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      path, " is not the file any more that it was when the job was checked: submit the job anew"));
  status.SetPayload(kChanged, absl::Cord());
  return status;
}

}  // namespace

FileIdentity IdentityOf(const struct stat& about) {
  return {.device = about.st_dev,
          .inode = about.st_ino,
          .bytes = about.st_size,
          .modified_ns = about.st_mtim.tv_sec * int64_t{1'000'000'000} + about.st_mtim.tv_nsec};
}

void KeepToOpened(const OpenedFiles* files) { opened_files = files; }

void ReadOnlyBelow(const std::vector<std::string>& folders) {
  ReadFolders().clear();
  for (const std::string& folder : folders) {
    std::error_code ignored;
    ReadFolders().push_back(fs::weakly_canonical(folder, ignored).string());
  }
}

bool MayBeThere(const std::string& path) {
  const OpenedFiles* kept = KeptTo(path);
  return kept == nullptr || kept->files.contains(path);
}

absl::StatusOr<int> OpenToRead(const std::string& path, int more_flags) {
  if (!IsForThisProcess(path))
    return absl::PermissionDeniedError(absl::StrCat(path, " is not to be read by this process"));
  if (!MayBeThere(path))
    return absl::NotFoundError(
        absl::StrCat("cannot open ", path, ": it was not there when the job was checked"));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | more_flags);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const OpenedFiles* kept = KeptTo(path);
  struct stat about = {};
  if (kept == nullptr || (fstat(fd, &about) == 0 && IdentityOf(about) == kept->files.at(path)))
    return fd;
  close(fd);
  return Changed(path);
}

bool IsInputChanged(const absl::Status& status) { return status.GetPayload(kChanged).has_value(); }

}  // namespace snug::program

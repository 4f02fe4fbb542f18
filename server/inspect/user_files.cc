#include "server/inspect/user_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <optional>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/random_id.h"
#include "server/job/transient.h"
#include "worker/program/files/carried_files.h"
#include "worker/program/files/opened_files.h"
#include "worker/program/files/regular_file.h"

namespace snug::server {
namespace {

constexpr size_t kMaxNames = 10'000;  // In a model's folder, of all kinds.
constexpr size_t kMaxOpened = 2'048;  // Twice the shards that a model may have.

bool IsShortage(int error) { return IsTransient(absl::ErrnoToStatus(error, "")); }

std::set<std::string> NamesToOpen() {
  std::set<std::string> names = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                 program::kChatTemplate, program::kGenerationConfig};
  names.insert(std::begin(program::kTokenizerFiles), std::end(program::kTokenizerFiles));
  return names;
}

// What is in a folder, if he may list it: the folder is opened as his files are, and what was
// opened is listed, whatever its name leads to by then.
std::optional<std::set<std::string>> NamesFor(const UserFiles::Rights& rights,
                                              const std::string& dir) {
  const int folder = rights.access.Open(dir, rights.who);
  if (folder < 0) return std::nullopt;
  const absl::Cleanup close_it = [folder] { close(folder); };
  struct stat about = {};
  if (fstat(folder, &about) != 0 || !S_ISDIR(about.st_mode)) return std::nullopt;
  const auto names = program::NamesIn(absl::StrCat("/proc/self/fd/", folder), kMaxNames);
  if (!names.ok()) return std::nullopt;
  return std::set<std::string>(names->begin(), names->end());
}

}  // namespace

absl::StatusOr<UserFiles> UserFiles::Open(const Folder& model, const Folder& adapter,
                                          const Rights& rights) {
  UserFiles files;
  const Principal daemon = DaemonPrincipal();
  const auto rights_of = [&](const Folder& folder) {
    return Rights{rights.access, folder.of_job ? daemon : rights.who};
  };
  if (!model.dir.empty()) RETURN_IF_ERROR(files.AddModel(model.dir, rights_of(model)));
  if (adapter.dir.empty()) return files;
  files.folders_.push_back(adapter.dir);
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    RETURN_IF_ERROR(
        files.Add(absl::StrCat(adapter.dir, "/", name), /*listed=*/false, rights_of(adapter)));
  return files;
}

UserFiles::~UserFiles() {
  for (const int fd : fds_) close(fd);
}

// A folder that may be searched and not listed still gives the files that every model has.
absl::Status UserFiles::AddModel(const std::string& dir, const Rights& rights) {
  std::set<std::string> names = NamesToOpen();
  const std::string templates = absl::StrCat(dir, "/", program::kMoreTemplates);
  folders_.insert(folders_.end(), {dir, templates});
  const auto there = NamesFor(rights, dir);
  const auto is_there = [&](const std::string& name) { return there && there->contains(name); };
  if (there) {
    std::erase_if(names, [&](const std::string& name) { return !is_there(name); });
    for (const std::string& name : *there) {
      if (absl::EndsWith(name, ".safetensors")) names.insert(name);
      if (names.contains(name)) continue;
      files_.emplace_back().set_path(absl::StrCat(dir, "/", name));
      files_.back().set_unopened(true);
    }
  }
  for (const std::string& name : names)
    RETURN_IF_ERROR(Add(absl::StrCat(dir, "/", name), is_there(name), rights));
  if (there && !is_there(program::kMoreTemplates)) return absl::OkStatus();
  for (const std::string& name : NamesFor(rights, templates).value_or(std::set<std::string>()))
    if (absl::EndsWith(name, ".jinja"))
      RETURN_IF_ERROR(Add(absl::StrCat(templates, "/", name), /*listed=*/true, rights));
  return absl::OkStatus();
}

absl::Status UserFiles::Add(const std::string& path, bool listed, const Rights& rights) {
  if (fds_.size() == kMaxOpened)
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more files than the ", kMaxOpened, " that a job may have"));
  const int fd = rights.access.Open(path, rights.who);
  const int error = fd < 0 ? errno : 0;
  if (IsShortage(error)) return absl::UnavailableError(absl::StrCat("cannot open ", path, " now"));
  if (error == ENOENT && !listed) return absl::OkStatus();
  files_.emplace_back().set_path(path);
  files_.back().set_error(error);
  if (fd >= 0) fds_.push_back(fd);
  return absl::OkStatus();
}

v1::OpenedFiles UserFiles::Opened() const {
  v1::OpenedFiles opened;
  *opened.mutable_folders() = {folders_.begin(), folders_.end()};
  auto fd = fds_.begin();
  for (const v1::InspectFile& file : files_) {
    if (file.unopened() || file.error() != 0) continue;
    struct stat about = {};
    fstat(*fd++, &about);
    const program::FileIdentity identity = program::IdentityOf(about);
    v1::OpenedFiles::File& one = *opened.add_files();
    one.set_path(file.path());
    one.set_device(identity.device);
    one.set_inode(identity.inode);
    one.set_bytes(identity.bytes);
    one.set_modified_ns(identity.modified_ns);
  }
  return opened;
}

std::string UserFiles::Identity() const {
  std::string identity;
  for (const v1::InspectFile& file : files_)
    absl::StrAppend(&identity, file.path(), "\n", file.error(), "\n");
  for (const int fd : fds_) {
    struct stat about = {};
    fstat(fd, &about);
    for (const auto number :
         {static_cast<int64_t>(about.st_dev), static_cast<int64_t>(about.st_ino),
          static_cast<int64_t>(about.st_size), static_cast<int64_t>(about.st_mtim.tv_sec),
          static_cast<int64_t>(about.st_mtim.tv_nsec), static_cast<int64_t>(about.st_ctim.tv_sec),
          static_cast<int64_t>(about.st_ctim.tv_nsec)})
      absl::StrAppend(&identity, number, "|");
  }
  return identity;
}

}  // namespace snug::server

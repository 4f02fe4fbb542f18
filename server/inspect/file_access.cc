#include "server/inspect/file_access.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/job_ref.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

// O_NONBLOCK: opening a FIFO must not wait for a writer.
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;

// `path` from `root`; empty: it is not below it.
std::string Below(const std::string& root, const std::string& path) {
  const std::string whole = fs::path(path).lexically_normal().string();
  const std::string top = fs::path(root + "/").lexically_normal().string();  // Ends with a slash.
  if (whole + "/" == top || whole == top) return ".";
  return absl::StartsWith(whole, top) ? whole.substr(top.size()) : "";
}

int OpenBelow(const std::string& root, const std::string& path, int flags = kFlags) {
  const int folder = open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return -1;
  const absl::Cleanup close_folder = [&] {
    const int error = errno;
    close(folder);
    errno = error;
  };
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
}

// By the bits of owner, group and others alone; `wanted` as in 0007.
bool Permits(const struct stat& about, const Principal& who, mode_t wanted) {
  if (about.st_uid == who.uid) return (about.st_mode >> 6 & wanted) == wanted;
  const bool in_group =
      about.st_gid == who.gid || std::count(who.groups.begin(), who.groups.end(), about.st_gid) > 0;
  return (about.st_mode >> (in_group ? 3 : 0) & wanted) == wanted;
}

// What a daemon that is not root must find out itself: that the user may search every folder on the
// way to the file, and read it. More than these bits grant, as an access list may, is not heeded.
bool MayReachAndRead(int fd, const Principal& who) {
  std::error_code error;
  const fs::path real = fs::read_symlink(absl::StrCat("/proc/self/fd/", fd), error);
  if (error || !real.is_absolute()) return false;
  struct stat about = {};
  for (fs::path folder = real.parent_path();; folder = folder.parent_path()) {
    if (stat(folder.c_str(), &about) != 0 || !Permits(about, who, 1)) return false;
    if (folder == folder.root_path()) break;
  }
  if (fstat(fd, &about) != 0) return false;
  return Permits(about, who, S_ISDIR(about.st_mode) ? 5 : 4);
}

// Where he may look into its folder he may know that a file is not there; of a link, that it leads
// nowhere is not for him to know.
bool MaySeeThatItIsMissing(const std::string& root, const std::string& below,
                           const Principal& who) {
  const std::string parent = fs::path(below).parent_path().string();
  const int folder = OpenBelow(root, parent.empty() ? "." : parent);
  const int link = OpenBelow(root, below, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  const bool may = folder >= 0 && link < 0 && MayReachAndRead(folder, who);
  for (const int fd : {folder, link})
    if (fd >= 0) close(fd);
  return may;
}

}  // namespace

const std::vector<std::string>& FileAccess::RootsOf(const Principal& who) const {
  static const std::vector<std::string>& none = *new std::vector<std::string>();
  if (who.tenant.empty()) return roots_.of_users;
  const auto found = roots_.of_tenants.find(who.tenant);
  return found == roots_.of_tenants.end() ? none : found->second;
}

Reach FileAccess::ReachOf(const Principal& who) const {
  if (who.trusted) return {};
  return {.roots = RootsOf(who),
          .open = [this, who](const std::string& path) { return Open(path, who); }};
}

int FileAccess::Open(const std::string& path, const Principal& who) const {
  if (who.trusted) return open(path.c_str(), kFlags);
  const AsPrincipal as_user(who);
  if (!as_user.ok()) {
    errno = EPERM;
    return -1;
  }
  errno = EXDEV;
  for (const std::string& root : RootsOf(who)) {
    const std::string below = Below(root, path);
    if (below.empty()) continue;
    const int fd = OpenBelow(root, below);
    if (geteuid() == 0 || !who.tenant.empty()) return fd;
    if (fd >= 0 && MayReachAndRead(fd, who)) return fd;
    const bool missing = fd < 0 && errno == ENOENT && MaySeeThatItIsMissing(root, below, who);
    if (fd >= 0) close(fd);
    errno = missing ? ENOENT : EACCES;
    return -1;
  }
  return -1;
}

absl::Status FileAccess::CheckPath(const std::string& path, const Principal& who) const {
  const int fd = Open(path, who);
  if (fd >= 0) {
    close(fd);
    return absl::OkStatus();
  }
  if (errno != EXDEV) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  const std::string whom =
      who.tenant.empty() ? "other users than its own" : absl::StrCat("tenant ", who.tenant);
  return absl::PermissionDeniedError(
      absl::StrCat(path, " is not below the folders that this daemon opens for ", whom,
                   " (roots in its configuration)"));
}

// What a pattern stands for and what lies in a folder is looked for as he may see it himself, and
// each file is asked for by itself: a link may lead anywhere.
absl::Status FileAccess::CheckSource(Source source, const Principal& who, InputFiles inputs) const {
  const std::string path = source.spec.path();
  const Reach reach = ReachOf(who);
  const auto told = [&](const absl::Status& status) {
    if (!IsRefused(status)) return status;
    return absl::PermissionDeniedError(
        absl::StrCat(path, " is, or holds, a file that this daemon does not open for you"));
  };
  RETURN_IF_ERROR(CheckPath(FixedFolder(path), who));
  if (inputs == InputFiles::kNamed) return told(CheckNamed(source, reach));
  RETURN_IF_ERROR(told(FindPaths(source, reach)));
  const absl::StatusOr<std::vector<SourceFile>> files = FilesOf(source, reach);
  RETURN_IF_ERROR(told(files.status()));
  for (const SourceFile& file : *files) RETURN_IF_ERROR(told(CheckPath(file.path, who)));
  return absl::OkStatus();
}

// Where its files are needed, whoever opens them for their reader says what is wrong with each.
absl::Status FileAccess::CheckAdapter(const std::string& path, const Principal& who,
                                      InputFiles inputs) const {
  RETURN_IF_ERROR(CheckPath(path, who));
  if (inputs != InputFiles::kNamed) return absl::OkStatus();
  return CheckPath(path + "/adapter_config.json", who);
}

std::vector<Violation> FileAccess::Check(const v1::JobSpec& spec, const Principal& who,
                                         InputFiles inputs) const {
  std::vector<Violation> found;
  if (who.trusted) return found;
  const auto add = [&](const std::string& field, const char* reason, const absl::Status& status) {
    if (!status.ok()) found.push_back({field, std::string(status.message()), reason});
  };
  if (inputs != InputFiles::kDone) {
    for (const auto& sources : {TrainSources(spec), EvalSources(spec)}) {
      for (const Source& source : sources)
        add("spec." + source.field, "BAD_DATASET", CheckSource(source, who, inputs));
    }
    const std::string& adapter = spec.lora().init_adapter();
    if (!adapter.empty() && !NamesJob(adapter))
      add("spec.lora.init_adapter", "BAD_ADAPTER", CheckAdapter(adapter, who, inputs));
  }
  if (!spec.model().empty() && !NamesJob(spec.model()))
    add("spec.model", "BAD_MODEL", CheckPath(spec.model(), who));
  return found;
}

}  // namespace snug::server

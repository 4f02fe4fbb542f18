#include "server/node/local_disk.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr long kLustre = 0x0BD00BD0;

bool IsOfANetwork(long type) {
  switch (type) {
    case NFS_SUPER_MAGIC:
    case SMB_SUPER_MAGIC:
    case CIFS_SUPER_MAGIC:
    case SMB2_SUPER_MAGIC:
    case kLustre:
      return true;
  }
  return false;
}

}  // namespace

absl::Status CheckLocalDisk(const std::string& folder) {
  struct statfs fs {};
  if (statfs(folder.c_str(), &fs) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot stat the file system of ", folder));
  const long type = fs.f_type & 0xFFFFFFFF;
  if (IsOfANetwork(type))
    return absl::FailedPreconditionError(
        absl::StrCat("state_dir ", folder, " is on a network's file system: use a local disk"));
  if (type == FUSE_SUPER_MAGIC)
    return absl::FailedPreconditionError(absl::StrCat(
        "state_dir ", folder, " is on a file system of a process (FUSE): use a local disk"));
  return absl::OkStatus();
}

}  // namespace snug::server

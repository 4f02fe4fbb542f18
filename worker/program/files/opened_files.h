// Files of a user that another process opened for him, with his rights, and that this one opens
// again by their paths. A path may have become another file since: a link to what he may not read,
// whose content he would be given in a tuned model.
#ifndef WORKER_PROGRAM_FILES_OPENED_FILES_H_
#define WORKER_PROGRAM_FILES_OPENED_FILES_H_

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace snug::program {

// What tells one file, as it was, from any other one.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t bytes = 0;
  int64_t modified_ns = 0;  // Since 1970.

  bool operator==(const FileIdentity&) const = default;
};

FileIdentity IdentityOf(const struct stat& about);

struct OpenedFiles {
  std::set<std::string> folders;              // What was not opened in them is not there.
  std::map<std::string, FileIdentity> files;  // By their paths, as they are asked for.
};

// From now on OpenToRead keeps to `files`, which outlives all reading; null: to nothing. Before the
// first reading, and from one thread.
void KeepToOpened(const OpenedFiles* files);

// From now on OpenToRead opens nothing but what lies below one of these folders, so that nothing
// else is read in this process. Before the first reading, and from one thread.
void ReadOnlyBelow(const std::vector<std::string>& folders);

// Whether there may be a file of that path: false in a folder in which it was not opened.
bool MayBeThere(const std::string& path);

// A descriptor, which the caller closes; opening never waits for a FIFO's other end. NOT_FOUND, and
// what else the system says; PERMISSION_DENIED: it is not for this process; IsInputChanged: it is
// not what was opened for the user.
absl::StatusOr<int> OpenToRead(const std::string& path, int more_flags = 0);

bool IsInputChanged(const absl::Status& status);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_FILES_OPENED_FILES_H_

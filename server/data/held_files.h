// The files of a job's dataset, and those of its model that snug-prepare reads, opened once, with
// the rights of the job's owner, and kept open: they are read to the end, whatever becomes of their
// paths meanwhile.
#ifndef SERVER_DATA_HELD_FILES_H_
#define SERVER_DATA_HELD_FILES_H_

#include <sys/stat.h>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::server {

// Never waits, whatever lies there. Below 0: errno says why.
int OpenToRead(const std::string& path);

// What may be opened for a job's owner (server/inspect/file_access.h).
struct Reach {
  // Folders below which his files must lie when they are opened; none: they may be anywhere.
  std::optional<std::vector<std::string>> roots = std::nullopt;
  std::function<int(const std::string& path)> open = OpenToRead;
};

// Whether something was not opened because its asker may not have it opened. (EXDEV, of what lies
// outside his roots, is "unimplemented".)
bool IsRefused(const absl::Status& status);

// What lies under a path. With roots it is opened for the owner, and what was opened is looked at,
// so that he learns nothing of what he cannot see; without, it is only looked at.
absl::StatusOr<struct stat> StatFor(const std::string& path, const Reach& reach);

struct FolderEntry {
  std::string name;
  std::filesystem::file_type type;  // A link is a link, wherever it leads. `unknown`: any other.
};
// In no order. The folder is opened for the owner, and what was opened is listed, whatever its path
// leads to by then.
absl::StatusOr<std::vector<FolderEntry>> ListFor(const std::string& folder, const Reach& reach);

class HeldFiles {
 public:
  // Those of a dataset of more are opened each time that they are read: descriptors are few.
  static constexpr size_t kMost = 64;

  HeldFiles() = default;
  HeldFiles(HeldFiles&& other) noexcept;
  HeldFiles& operator=(HeldFiles&&) = delete;
  ~HeldFiles();

  // All of them, or none where they are more than kMost or one cannot be opened: who needs it says
  // so.
  static HeldFiles Open(const std::vector<std::string>& paths, const Reach& reach);

  // Those of at most kMost that are there; an error where one is and cannot be opened.
  static absl::StatusOr<HeldFiles> OpenPresent(const std::vector<std::string>& paths,
                                               const Reach& reach);

  // In order.
  std::vector<std::string> paths() const;
  bool Holds(const std::string& path) const { return files_.contains(path); }

  // A descriptor of the file that is held under this path, or of what `reach` finds there. The
  // former shares its offset with all others of it.
  int OpenAgain(const std::string& path, const Reach& reach) const;

 private:
  std::map<std::string, int> files_;  // Descriptors, by path.
};

}  // namespace snug::server

#endif  // SERVER_DATA_HELD_FILES_H_

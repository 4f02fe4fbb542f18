// Folders of prepared datasets: which are there, and when each was used last. And those that they
// are made in.
#ifndef SERVER_DATA_PREPARED_FOLDERS_H_
#define SERVER_DATA_PREPARED_FOLDERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace snug::server {

// run.part-<random>: of a run that has not ended.
inline constexpr absl::string_view kPartMark = ".part-";

// The one folder that a run of snug-prepare may write in. It goes with all that is left in it.
class RunFolder {
 public:
  // In `parent`. UNAVAILABLE with PREPARE_FAILED where it cannot be made.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Make(const std::string& parent);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}

  const std::string path_;
};

// Paths of those in `folder` that are complete.
std::vector<std::string> PreparedIn(const std::string& folder);

// The time of change of a folder that is there; else the beginning of time.
absl::Time LastUse(const std::string& prepared);
// Makes it now.
void NoteUse(const std::string& prepared);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARED_FOLDERS_H_

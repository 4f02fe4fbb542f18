// Folders of prepared datasets: which are there, and when each was used last.
#ifndef SERVER_DATA_PREPARED_FOLDERS_H_
#define SERVER_DATA_PREPARED_FOLDERS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace snug::server {

// <hash>.part-<random>: of a run that has not ended.
inline constexpr absl::string_view kPartMark = ".part-";

// Paths of those in `folder` that are complete.
std::vector<std::string> PreparedIn(const std::string& folder);

// The time of change of a folder that is there; else the beginning of time.
absl::Time LastUse(const std::string& prepared);
// Makes it now.
void NoteUse(const std::string& prepared);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARED_FOLDERS_H_

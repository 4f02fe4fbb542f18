// Folders of jobs that are being deleted: moved out of the way at once, removed when there is time.
// trash/JOB.RANDOM, so that a new job may have the id at once.
#ifndef SERVER_SCHEDULER_TRASH_H_
#define SERVER_SCHEDULER_TRASH_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace snug::server {

// The folder's new place; empty when the job has none.
absl::StatusOr<std::string> MoveToTrash(const std::string& state_dir, const std::string& job);
void PutBack(const std::string& state_dir, const std::string& aside);
void EmptyTrash(const std::string& aside);

// What an earlier life of the daemon left there: folders of jobs that there still are go back, the
// others are returned, to be removed.
std::vector<std::string> SortTrash(const std::string& state_dir,
                                   const std::function<bool(const std::string& job)>& exists);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_TRASH_H_

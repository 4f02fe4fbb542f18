#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/examine/examining.h"
#include "server/node/attempt_files.h"
#include "server/node/session.h"

namespace snug::server {
namespace {

constexpr const char* kCheck = "processes_of_open_attempts";
// An attempt is closed when all its processes have been seen to be gone, but between a look at the
// processes and one at the rows it may end: what is there at both of two looks does not.
constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

// Processes of attempts that are not open, with the folders that they are marked with.
absl::StatusOr<std::map<pid_t, std::string>> Strays(Examining& examining) {
  const std::string& state_dir = examining.premises().state_dir;
  const absl::Time begin = absl::Now();
  ASSIGN_OR_RETURN(auto marked, ProcessesOfAttempts(state_dir + "/jobs/"));
  RETURN_IF_ERROR(examining.RestSince(begin));
  std::set<std::string> open;
  RETURN_IF_ERROR(examining.Look([&](Database& database) {
    return database.Query("SELECT job, epoch FROM attempts WHERE state<6", [&](const Row& row) {
      open.insert(AttemptDir(state_dir, row.Text(0), static_cast<int>(row.Int(1))));
      return absl::OkStatus();
    });
  }));
  std::erase_if(marked, [&](const auto& process) { return open.contains(process.second); });
  return marked;
}

}  // namespace

absl::Status CheckProcesses(Examining& examining) {
  examining.Begin(kCheck);
  ASSIGN_OR_RETURN(const auto first, Strays(examining));
  if (first.empty()) return absl::OkStatus();
  absl::SleepFor(kBetweenLooks);
  ASSIGN_OR_RETURN(const auto second, Strays(examining));
  for (const auto& [pid, attempt] : second)
    if (const auto seen = first.find(pid); seen != first.end() && seen->second == attempt)
      examining.Add(kCheck, attempt,
                    absl::StrCat("process ", pid, " runs for it, and it is not open"));
  return absl::OkStatus();
}

}  // namespace snug::server

#include "server/api/authorise.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"

namespace snug::server {
namespace {

enum class May {
  kEverybody,  // On the socket: its file's mode lets the owner and his group in.
  kOperator,   // The daemon's own user and root.
  kJobsOwner,  // Of the job that is named; the daemon's own user and root any job's.
};

struct Rule {
  absl::string_view method;
  May may;
};

constexpr Rule kRules[] = {
    {"CreateJob", May::kEverybody},       // The job is his, its files are opened as him.
    {"PlanJob", May::kEverybody},         // Likewise opened.
    {"PreviewDataset", May::kEverybody},  // Likewise opened.
    {"ListJobs", May::kEverybody},        // Of his own.
    {"GetServerInfo", May::kEverybody},   // Devices, and how much of them is promised.
    {"GetJob", May::kJobsOwner},          {"WatchJob", May::kJobsOwner},
    {"CancelJob", May::kJobsOwner},       {"GetJobLogs", May::kJobsOwner},
    {"DownloadJob", May::kJobsOwner},     {"UpdateJob", May::kJobsOwner},
    {"RerunJob", May::kJobsOwner},        {"DeleteJob", May::kJobsOwner},
    {"PauseJob", May::kJobsOwner},        {"ResumeJob", May::kJobsOwner},
    {"ListCheckpoints", May::kJobsOwner}, {"BackupStore", May::kOperator},
    {"ExtendJob", May::kJobsOwner},       {"SqueezeJob", May::kJobsOwner},
    {"RelaxJob", May::kJobsOwner},        {"CheckStore", May::kOperator},
    {"CreateToken", May::kOperator},      {"ListTokens", May::kOperator},
    {"RevokeToken", May::kOperator},
};

}  // namespace

absl::StatusOr<std::string> Authorise(const std::optional<Principal>& principal,
                                      absl::string_view method, const std::string& job,
                                      const JobIndex& index) {
  if (!principal)
    return WithReason(absl::UnauthenticatedError("the daemon cannot tell who calls"),
                      "UNAUTHENTICATED");
  const auto is = [&](const Rule& rule) { return rule.method == method; };
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules), is);
  if (rule == std::end(kRules))
    return WithReason(absl::PermissionDeniedError(absl::StrCat("nobody may call ", method)),
                      "PERMISSION_DENIED");
  if (rule->may == May::kOperator && !principal->trusted)
    return WithReason(
        absl::PermissionDeniedError(absl::StrCat("the daemon's own user may call ", method)),
        "PERMISSION_DENIED");
  if (rule->may != May::kJobsOwner) return std::string();
  ASSIGN_OR_RETURN(const JobPtr found, index.Find(job, *principal));
  return found->id();
}

}  // namespace snug::server

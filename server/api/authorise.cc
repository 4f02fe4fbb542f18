#include "server/api/authorise.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"

namespace snug::server {
namespace {

// Each may what those before it may.
enum class Rank {
  kViewer,  // An auditor is one too, who sees the jobs of all.
  kUser,    // Also whoever may open the socket: its file's mode lets the owner and his group in.
  kOperator,
  kDaemon,  // Its own user and root, on the socket alone.
};

enum class About {
  kNoJob,  // What it makes is his, and its files are opened as his; what it lists he may see.
  kJob,    // One that he may see.
  kAll,    // The jobs of all.
};

struct Rule {
  absl::string_view method;
  Rank least;
  About about;
  bool changes = false;
};

constexpr bool kChanges = true;

constexpr Rule kRules[] = {
    {"ListJobs", Rank::kViewer, About::kNoJob},
    {"GetServerInfo", Rank::kViewer, About::kNoJob},  // Devices, and how much is promised.
    {"GetJob", Rank::kViewer, About::kJob},
    {"WatchJob", Rank::kViewer, About::kJob},
    {"GetJobLogs", Rank::kViewer, About::kJob},
    {"GetMetricHistory", Rank::kViewer, About::kJob},
    {"DownloadJob", Rank::kViewer, About::kJob},
    {"ListCheckpoints", Rank::kViewer, About::kJob},
    {"ListArtifacts", Rank::kViewer, About::kJob},
    {"PlanJob", Rank::kUser, About::kNoJob},
    {"PreviewDataset", Rank::kUser, About::kNoJob},
    {"UploadFile", Rank::kUser, About::kNoJob, kChanges},
    {"GetUpload", Rank::kUser, About::kNoJob},
    {"ListFiles", Rank::kUser, About::kNoJob},
    {"GetFile", Rank::kUser, About::kNoJob},
    {"DeleteFile", Rank::kUser, About::kNoJob, kChanges},
    {"Sample", Rank::kUser, About::kJob},
    {"CreateJob", Rank::kUser, About::kNoJob, kChanges},
    {"CancelJob", Rank::kUser, About::kJob, kChanges},
    {"PauseJob", Rank::kUser, About::kJob, kChanges},
    {"ResumeJob", Rank::kUser, About::kJob, kChanges},
    {"SqueezeJob", Rank::kUser, About::kJob, kChanges},
    {"RelaxJob", Rank::kUser, About::kJob, kChanges},
    {"UpdateJob", Rank::kUser, About::kJob, kChanges},
    {"RerunJob", Rank::kUser, About::kJob, kChanges},
    {"ExtendJob", Rank::kUser, About::kJob, kChanges},
    {"DeleteJob", Rank::kUser, About::kJob, kChanges},
    {"BackupStore", Rank::kOperator, About::kNoJob},
    {"CheckStore", Rank::kOperator, About::kNoJob},
    {"/metrics", Rank::kViewer, About::kAll},  // Over HTTPS.
    {"CreateSession", Rank::kViewer, About::kNoJob, kChanges},
    {"DrainDevice", Rank::kOperator, About::kNoJob, kChanges},
    {"UndrainDevice", Rank::kOperator, About::kNoJob, kChanges},
    {"CreateToken", Rank::kDaemon, About::kNoJob, kChanges},
    {"ListTokens", Rank::kDaemon, About::kNoJob},
    {"RevokeToken", Rank::kDaemon, About::kNoJob, kChanges},
};

constexpr const char* kMayCall[] = {
    "everybody", "only a user or an operator of a tenant", "only an operator",
    "only the daemon's own user, over the unix socket,"};  // By Rank.

Rank RankOf(const Principal& who) {
  if (who.trusted) return Rank::kDaemon;
  if (who.tenant.empty() || who.role == v1::Token::ROLE_USER) return Rank::kUser;
  return who.role == v1::Token::ROLE_OPERATOR ? Rank::kOperator : Rank::kViewer;
}

const Rule* FindRule(absl::string_view method) {
  const auto is = [&](const Rule& rule) { return rule.method == method; };
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules), is);
  return rule == std::end(kRules) ? nullptr : rule;
}

absl::Status Denied(absl::string_view who_may, absl::string_view method) {
  return WithReason(absl::PermissionDeniedError(absl::StrCat(who_may, " may call ", method)),
                    "PERMISSION_DENIED");
}

}  // namespace

absl::Status MayCall(const std::optional<Principal>& principal, absl::string_view method) {
  if (!principal)
    return WithReason(absl::UnauthenticatedError("the daemon cannot tell who calls"),
                      "UNAUTHENTICATED");
  const Rule* rule = FindRule(method);
  if (rule == nullptr) return Denied("nobody", method);
  if (rule->about == About::kAll && !principal->SeesAll())
    return Denied("only an operator or an auditor", method);
  if (RankOf(*principal) < rule->least)
    return Denied(kMayCall[static_cast<size_t>(rule->least)], method);
  if (principal->reads_only && rule->changes) return Denied("nobody in a session", method);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Authorise(const std::optional<Principal>& principal,
                                      absl::string_view method, const std::string& job,
                                      const JobIndex& index) {
  RETURN_IF_ERROR(MayCall(principal, method));
  if (FindRule(method)->about != About::kJob) return std::string();
  ASSIGN_OR_RETURN(const JobPtr found, index.Search(job, *principal));
  return KeyOf(*found);
}

bool ChangesSomething(absl::string_view method) {
  const Rule* rule = FindRule(method);
  return rule != nullptr && rule->changes;
}

}  // namespace snug::server

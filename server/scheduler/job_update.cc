#include "server/scheduler/job_update.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"
#include "server/job/check_labels.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/states.h"

namespace snug::server {
namespace {

constexpr const char* kLabel = "labels.";

absl::Status SetPriority(int32_t priority, v1::Job& job) {
  if (IsTerminal(job.state()))
    return WrongState(job.id(), "change the priority of", NameOf(job.state()));
  if (std::abs(int64_t{priority}) > kMaxPriority)
    return InvalidRequest(
        {{"priority", absl::StrCat(priority, " is outside -", kMaxPriority, " to ", kMaxPriority),
          "BAD_FIELD"}});
  job.set_priority(priority);
  return absl::OkStatus();
}

// What the mask names, and only that: "*" stands for all that there is.
absl::Status ApplyPath(const v1::UpdateJobRequest& request, absl::string_view path, v1::Job& job) {
  const bool all = path == "*";
  // An ended job's priority can stay as it is.
  if (path == "priority" || (all && request.priority() != job.priority()))
    RETURN_IF_ERROR(SetPriority(request.priority(), job));
  if (path == "labels" || all) *job.mutable_labels() = request.labels();
  if (path == "priority" || path == "labels" || all) return absl::OkStatus();
  const std::string key(absl::StripPrefix(path, kLabel));
  if (key.size() == path.size() || key.empty())
    return InvalidRequest({{"update_mask",
                            absl::StrCat("\"", path, "\" cannot be updated: priority, labels, ",
                                         kLabel, "KEY and * can"),
                            "BAD_FIELD"}});
  const auto given = request.labels().find(key);
  if (given == request.labels().end())
    job.mutable_labels()->erase(key);
  else
    (*job.mutable_labels())[key] = given->second;
  return absl::OkStatus();
}

}  // namespace

absl::Status UpdateJob(const v1::UpdateJobRequest& request, v1::Job& job) {
  const auto& paths = request.update_mask().paths();
  if (!paths.empty() && !request.remove_labels().empty())
    return InvalidRequest(
        {{"remove_labels", "has to be empty where update_mask says what changes", "BAD_FIELD"}});
  for (const std::string& path : paths) RETURN_IF_ERROR(ApplyPath(request, path, job));
  if (paths.empty()) {
    if (request.has_priority()) RETURN_IF_ERROR(SetPriority(request.priority(), job));
    for (const std::string& key : request.remove_labels()) job.mutable_labels()->erase(key);
    for (const auto& [key, value] : request.labels()) (*job.mutable_labels())[key] = value;
  }
  return CheckLabels("labels", job.labels());
}

}  // namespace snug::server

// Jobs named where a spec could name a path: what another job made is what this one begins with.
//
//   JOB                     what it made in the end
//   JOB/checkpoints/STEP    what it was after that step
//
// JOB is its id, an unambiguous beginning of it, or its name, tenants/TENANT/jobs/JOB. An id is
// that of a job of the tenant whose job names it.
#ifndef SERVER_JOB_JOB_REF_H_
#define SERVER_JOB_JOB_REF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct JobRef {
  std::string job;
  std::optional<int64_t> step;  // Of the checkpoint.

  bool operator==(const JobRef&) const = default;
};

// Nothing: it names no job, and may be a path.
std::optional<JobRef> ParseJobRef(absl::string_view text);
inline bool NamesJob(absl::string_view text) { return ParseJobRef(text).has_value(); }
std::string TextOf(const JobRef& ref);

// What one of the tenant calls the job: its id, or its name where it is another tenant's.
std::string RefTo(const v1::Job& job, absl::string_view tenant);

// What a spec of one of the tenant names, with the job in it by its name: for specs of others. A
// path is left as it is.
std::string ForAll(absl::string_view text, absl::string_view tenant);
// The job's spec, as one of that tenant may submit it again.
v1::JobSpec SpecFor(absl::string_view tenant, const v1::Job& job);

// Whether `other` begins with what `job` made.
bool BeginsWith(const v1::Job& other, const v1::Job& job);
// The name of the one that the job runs again, or extends; or empty.
std::string ParentOf(const v1::Job& job);
// Of those that the job begins with.
std::vector<std::string> NamesOfOrigins(const v1::Job& job);
// Of all that the job names: those that it begins with, and its parent.
std::vector<std::string> NamesOfReferred(const v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_REF_H_

// Jobs named where a spec could name a path: what another job made is what this one begins with.
//
//   JOB                     what it made in the end
//   JOB/checkpoints/STEP    what it was after that step
//
// JOB is its id, an unambiguous beginning of it, or its name, tenants/TENANT/jobs/JOB.
#ifndef SERVER_JOB_JOB_REF_H_
#define SERVER_JOB_JOB_REF_H_

#include <cstdint>
#include <optional>
#include <string>

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

// Whether the spec begins with what the job of that id made.
bool BeginsWith(const v1::JobSpec& spec, absl::string_view id);

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_REF_H_

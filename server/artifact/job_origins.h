// What jobs of this daemon made, for other jobs to begin with.
#ifndef SERVER_ARTIFACT_JOB_ORIGINS_H_
#define SERVER_ARTIFACT_JOB_ORIGINS_H_

#include <string>
#include <utility>

#include "server/job/job_index.h"
#include "server/job/origins.h"
#include "server/job/principal.h"

namespace snug::server {

// A checkpoint serves once its job has ended: until then it makes room for the next ones. As a
// model's folder it is believed like any; of others the worker that begins with one verifies it.
class JobOrigins : public Origins {
 public:
  // `who` may see the jobs.
  JobOrigins(const JobIndex& index, std::string state_dir, Principal who)
      : index_(index), state_dir_(std::move(state_dir)), who_(std::move(who)) {}

  absl::StatusOr<JobRef> Whole(const JobRef& ref) const override;
  absl::StatusOr<ModelOrigin> Model(const JobRef& ref) const override;
  absl::StatusOr<AdapterOrigin> Adapter(const JobRef& ref, const v1::JobSpec& spec) const override;

 private:
  absl::StatusOr<JobPtr> Find(const JobRef& ref) const;
  absl::StatusOr<JobPtr> FindOf(const JobRef& ref, v1::JobSpec::Method method) const;
  absl::StatusOr<std::string> CheckpointOf(const v1::Job& job, int64_t step) const;

  const JobIndex& index_;
  const std::string state_dir_;
  const Principal who_;
};

}  // namespace snug::server

#endif  // SERVER_ARTIFACT_JOB_ORIGINS_H_

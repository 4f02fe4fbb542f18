// A daemon whose jobs made nothing.
#ifndef TESTS_SERVER_JOB_NO_ORIGINS_H_
#define TESTS_SERVER_JOB_NO_ORIGINS_H_

#include "server/job/errors.h"
#include "server/job/origins.h"

namespace snug::server {

class NoOrigins : public Origins {
 public:
  absl::StatusOr<JobRef> Whole(const JobRef& ref) const override { return JobNotFound(ref.job); }
  absl::StatusOr<ModelOrigin> Model(const JobRef& ref) const override {
    return JobNotFound(ref.job);
  }
  absl::StatusOr<AdapterOrigin> Adapter(const JobRef& ref, const v1::JobSpec&) const override {
    return JobNotFound(ref.job);
  }
};

}  // namespace snug::server

#endif  // TESTS_SERVER_JOB_NO_ORIGINS_H_

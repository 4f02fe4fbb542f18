// What a job begins with: a model's folder and, where it goes on with an adapter or with a
// checkpoint's weights, those. A spec names each by a path or by the job that made it.
#ifndef SERVER_JOB_ORIGINS_H_
#define SERVER_JOB_ORIGINS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/job/job_ref.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct ModelOrigin {
  std::string dir;         // With config.json, the tokenizer and weights.
  std::string checkpoint;  // Its weights take the place of those; empty: none do.
};

struct AdapterOrigin {
  std::string dir;         // A PEFT folder; empty: a checkpoint has it.
  std::string checkpoint;  // A folder with an adapter's weights; empty: `dir` has them.
  v1::LoraSpec lora = {};  // Of a checkpoint: what its job was told of the adapter.
};

// Finds what other jobs made, for one who may see them.
class Origins {
 public:
  virtual ~Origins() = default;
  // What `ref` with the job's whole id in it is. NOT_FOUND: he sees no such job.
  virtual absl::StatusOr<JobRef> Whole(const JobRef& ref) const = 0;
  // FAILED_PRECONDITION: the job has not ended, or has not made such a thing. NOT_FOUND: there is
  // no such job, or checkpoint.
  virtual absl::StatusOr<ModelOrigin> Model(const JobRef& ref) const = 0;
  // Likewise; `spec`: of the job that is to begin with it, which has the same base.
  virtual absl::StatusOr<AdapterOrigin> Adapter(const JobRef& ref,
                                                const v1::JobSpec& spec) const = 0;
};

// Of spec.model. NOT_FOUND, INVALID_ARGUMENT: its path leads to no folder. FAILED_PRECONDITION: an
// adapter needs a base that is all in one folder.
absl::StatusOr<ModelOrigin> ModelOriginOf(const v1::JobSpec& spec, const Origins& origins);
// Of spec.lora.init_adapter: all empty where it is.
absl::StatusOr<AdapterOrigin> AdapterOriginOf(const v1::JobSpec& spec, const Origins& origins);

// Writes the whole ids of the jobs into the spec: a beginning of an id may be of several jobs
// later.
absl::Status NameOrigins(const Origins& origins, v1::JobSpec& spec);

}  // namespace snug::server

#endif  // SERVER_JOB_ORIGINS_H_

#include "server/artifact/job_origins.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"
#include "server/job/states.h"
#include "server/node/attempt_files.h"

namespace snug::server {

absl::StatusOr<JobPtr> JobOrigins::Find(const JobRef& ref) const {
  return index_.Search(ref.job, who_);
}

absl::StatusOr<JobRef> JobOrigins::Whole(const JobRef& ref) const {
  ASSIGN_OR_RETURN(const JobPtr job, Find(ref));
  return JobRef{.job = RefTo(*job, TenantOf(who_.name())), .step = ref.step};
}

absl::StatusOr<JobPtr> JobOrigins::FindOf(const JobRef& ref, v1::JobSpec::Method method) const {
  ASSIGN_OR_RETURN(JobPtr job, Find(ref));
  if (job->spec().method() == method) return job;
  return absl::FailedPreconditionError(
      method == v1::JobSpec::METHOD_FULL
          ? absl::StrCat("job \"", job->id(),
                         "\" made an adapter, not a model: name a job of method full, or give this "
                         "one as lora.init_adapter")
          : absl::StrCat("job \"", job->id(),
                         "\" made a model, not an adapter: name a job of method lora, or give this "
                         "one as model"));
}

absl::StatusOr<std::string> JobOrigins::CheckpointOf(const v1::Job& job, int64_t step) const {
  if (!IsTerminal(job.state()))
    return WrongState(job.id(), "begin with a checkpoint of", NameOf(job.state()));
  return FolderAt(job.id(), CheckpointsDir(state_dir_, KeyOf(job)), step);
}

// A checkpoint is a model's folder, unless the version that wrote it made none yet, or its base had
// gone: of such a one all but the weights is that of the model that its job began with.
absl::StatusOr<ModelOrigin> JobOrigins::Model(const JobRef& ref) const {
  ASSIGN_OR_RETURN(const JobPtr job, FindOf(ref, v1::JobSpec::METHOD_FULL));
  ModelOrigin origin;
  if (!ref.step) {
    ASSIGN_OR_RETURN(origin.dir, index_.OutputOf(KeyOf(*job)));
    return origin;
  }
  ASSIGN_OR_RETURN(std::string folder, CheckpointOf(*job, *ref.step));
  std::error_code ignored;
  if (std::filesystem::exists(folder + "/model.safetensors", ignored))
    return ModelOrigin{.dir = std::move(folder), .checkpoint = ""};
  if (!job->spec().added_tokens().empty())
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job->id(), "\" has added tokens, which this checkpoint has no ",
                     "tokenizer with: name the job, for what it made in the end"));
  ASSIGN_OR_RETURN(origin, ModelOriginOf(SpecFor(TenantOf(who_.name()), *job), *this));
  origin.checkpoint = std::move(folder);
  return origin;
}

absl::StatusOr<AdapterOrigin> JobOrigins::Adapter(const JobRef& ref,
                                                  const v1::JobSpec& spec) const {
  ASSIGN_OR_RETURN(const JobPtr job, FindOf(ref, v1::JobSpec::METHOD_LORA));
  AdapterOrigin origin;
  if (!ref.step) {
    ASSIGN_OR_RETURN(origin.dir, index_.OutputOf(KeyOf(*job)));
    return origin;
  }
  const v1::JobSpec& theirs = job->spec();
  const auto tokens = [](const v1::JobSpec& of) {
    return std::vector<std::string>(of.added_tokens().begin(), of.added_tokens().end());
  };
  const bool same_model =
      ForAll(theirs.model(), TenantOf(job->owner())) == ForAll(spec.model(), TenantOf(who_.name()));
  if (!same_model || tokens(theirs) != tokens(spec))
    return absl::FailedPreconditionError(
        absl::StrCat("job \"", job->id(), "\" trained it beside model: ", theirs.model(),
                     tokens(theirs).empty() ? "" : ", with added_tokens", ": name the same"));
  ASSIGN_OR_RETURN(origin.checkpoint, CheckpointOf(*job, *ref.step));
  origin.lora = theirs.lora();
  return origin;
}

}  // namespace snug::server

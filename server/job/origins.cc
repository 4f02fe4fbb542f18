#include "server/job/origins.h"

#include <sys/stat.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {

namespace {

// Whose adapter nobody else could load.
absl::Status NoBaseOfAdapter(const std::string& checkpoint) {
  return absl::FailedPreconditionError(absl::StrCat(
      checkpoint, " has weights and no config.json (an older version wrote it, or the files of ",
      "its base had gone), so only a job of method full begins with it: let one with ",
      "training.max_steps: 1 and training.learning_rate: 0 make a model of it, and name that job"));
}

}  // namespace

absl::StatusOr<ModelOrigin> ModelOriginOf(const v1::JobSpec& spec, const Origins& origins) {
  if (const std::optional<JobRef> ref = ParseJobRef(spec.model())) {
    ASSIGN_OR_RETURN(ModelOrigin origin, origins.Model(*ref));
    if (!origin.checkpoint.empty() && spec.method() == v1::JobSpec::METHOD_LORA)
      return NoBaseOfAdapter(spec.model());
    return origin;
  }
  struct stat status {};
  if (stat(spec.model().c_str(), &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", spec.model()));
  if (!S_ISDIR(status.st_mode))
    return absl::InvalidArgumentError(
        absl::StrCat(spec.model(), " is not a directory: give the folder with config.json"));
  return ModelOrigin{.dir = spec.model(), .checkpoint = ""};
}

absl::StatusOr<AdapterOrigin> AdapterOriginOf(const v1::JobSpec& spec, const Origins& origins) {
  const std::string& adapter = spec.lora().init_adapter();
  if (const std::optional<JobRef> ref = ParseJobRef(adapter)) return origins.Adapter(*ref, spec);
  return AdapterOrigin{.dir = adapter, .checkpoint = ""};
}

absl::Status NameOrigins(const Origins& origins, v1::JobSpec& spec) {
  if (const std::optional<JobRef> ref = ParseJobRef(spec.model())) {
    ASSIGN_OR_RETURN(const JobRef whole, origins.Whole(*ref));
    spec.set_model(TextOf(whole));
  }
  if (const std::optional<JobRef> ref = ParseJobRef(spec.lora().init_adapter())) {
    ASSIGN_OR_RETURN(const JobRef whole, origins.Whole(*ref));
    spec.mutable_lora()->set_init_adapter(TextOf(whole));
  }
  return absl::OkStatus();
}

}  // namespace snug::server

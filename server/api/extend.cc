#include "server/api/extend.h"

#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/artifact/checkpoints.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "server/job/job_ref.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

// Of the newest checkpoint; 0: there is none behind a step.
absl::StatusOr<int64_t> LastStep(const std::string& checkpoints_dir) {
  ASSIGN_OR_RETURN(const std::vector<std::string> dirs, ListCheckpoints(checkpoints_dir));
  if (dirs.empty()) return 0;
  return ParseCheckpointName(std::filesystem::path(dirs.front()).filename().string())->step;
}

}  // namespace

absl::StatusOr<CreateOrder> OrderToExtend(const JobRecord& parent,
                                          const v1::ExtendJobRequest& request, const Principal& who,
                                          const std::string& state_dir) {
  if (!IsTerminal(parent.state()))
    return WrongState(parent.job.id(), "extend", NameOf(parent.state()));
  ASSIGN_OR_RETURN(const int64_t step, LastStep(CheckpointsDir(state_dir, parent.key())));
  if (step == 0)
    return WithReason(absl::FailedPreconditionError(absl::StrCat(
                          "job \"", parent.job.id(), "\" has no checkpoint to go on from; a job ",
                          "saves them with training.save_steps or save_strategy")),
                      "CHECKPOINT_NOT_FOUND");
  if (request.steps() < 1 || request.steps() > kMaxSteps - step)
    return InvalidRequest(
        {{"steps", absl::StrCat(request.steps(), " is outside 1 to ", kMaxSteps - step),
          "BAD_FIELD"}});
  CreateOrder order{.spec = SpecFor(TenantOf(who.name()), parent.job),
                    .parent_job = RefTo(parent.job, TenantOf(who.name())),
                    .extends = {.job = parent.key(),
                                .step = step,
                                .train_data = parent.train_data,
                                .eval_data = parent.eval_data,
                                .dataset = parent.job.dataset()}};
  order.spec.mutable_training()->set_max_steps(step + request.steps());
  return order;
}

}  // namespace snug::server

#include "worker/train/resumable.h"

#include "absl/strings/str_cat.h"

namespace snug::train {
namespace {

bool IsWhereItBegins(const checkpoint::RunState& state, const AttemptOptions& attempt) {
  return attempt.begin_step > 0 && state.global_step == attempt.begin_step &&
         state.job_id == attempt.parent_job;
}

}  // namespace

absl::Status CheckResumable(const checkpoint::RunState& state, const AttemptOptions& attempt,
                            const std::string& dataset_sha256) {
  if (state.job_id != attempt.job_id && !IsWhereItBegins(state, attempt))
    return absl::FailedPreconditionError(
        absl::StrCat(attempt.resume_from, " is of job ", state.job_id, ", not ", attempt.job_id));
  if (state.seed != attempt.training.seed)
    return absl::FailedPreconditionError(absl::StrCat(attempt.resume_from, " has seed ", state.seed,
                                                      ", not ", attempt.training.seed));
  if (state.dataset_sha256 != dataset_sha256)
    return absl::FailedPreconditionError(
        absl::StrCat(attempt.resume_from, " was trained on other data than ", attempt.train_data));
  return absl::OkStatus();
}

}  // namespace snug::train

#include "server/retention/sweep.h"

#include "server/job/job_ref.h"
#include "server/job/states.h"

namespace snug::server {

bool Sweep::Goes(Tally& tally, absl::Duration age, int64_t bytes, bool referred) {
  const bool fits = tally.Fits(age, bytes);
  if (!fits && !referred) return true;
  tally.Add(bytes);
  return false;
}

void Sweep::NoteReferences(const v1::Job& job) {
  if (!job.parent_job().empty()) referred_.insert(job.parent_job());
  for (const std::string& named : {job.spec().model(), job.spec().lora().init_adapter()})
    if (const std::optional<JobRef> other = ParseJobRef(named)) referred_.insert(other->job);
}

Verdict Sweep::Judge(const v1::Job& job, absl::Duration age, const Leavings& leavings) {
  if (!IsTerminal(job.state())) {
    NoteReferences(job);
    return {};
  }
  const bool referred = referred_.contains(job.id());
  if (referred && !jobs_.Fits(age, leavings.all_bytes)) ++held_;
  if (Goes(jobs_, age, leavings.all_bytes, referred)) return {.job = true};
  NoteReferences(job);
  Verdict verdict;
  if (leavings.has_checkpoints)
    verdict.checkpoints = Goes(checkpoints_, age, leavings.checkpoint_bytes, referred);
  if (leavings.has_logs) verdict.logs = Goes(logs_, age, leavings.log_bytes, referred);
  return verdict;
}

}  // namespace snug::server

#include "server/retention/sweep.h"

#include <utility>

#include "server/job/job_ref.h"
#include "server/job/names.h"
#include "server/job/states.h"

namespace snug::server {

bool Sweep::Goes(Tally& tally, absl::Duration age, int64_t bytes, bool referred) {
  const bool fits = tally.Fits(age, bytes);
  if (!fits && !referred) return true;
  tally.Add(bytes);
  return false;
}

void Sweep::NoteReferences(const v1::Job& job) {
  for (std::string& name : NamesOfReferred(job)) referred_.insert(std::move(name));
}

Verdict Sweep::Judge(const v1::Job& job, absl::Duration age, const Leavings& leavings) {
  if (!IsTerminal(job.state())) {
    NoteReferences(job);
    return {};
  }
  const bool referred = referred_.contains(JobName(job));
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

#include "server/scheduler/drift.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "worker/program/stash.h"

namespace snug::server {
namespace {

bool IsApproximate(const std::string& kind) {
  const std::optional<program::Stash> stash = program::StashOfName(kind);
  return stash.has_value() && program::RowOf(*stash).fidelity == program::Fidelity::kApproximate;
}

}  // namespace

std::string NoteDrift(const v1::WorkerEvent::Step& report, v1::Job& job) {
  const double bound = job.spec().memory().drift_bound();
  std::string beyond;
  for (const auto& [kind, drift] : report.drift()) {
    v1::Drift& known = (*job.mutable_drift())[kind];
    const bool is_new = known.global_step() != drift.global_step();
    known = drift;
    if (!is_new || bound == 0.0 || drift.relative_error() <= bound || !IsApproximate(kind))
      continue;
    beyond = absl::StrCat("the gradient under ", kind, " had a relative error of ",
                          drift.relative_error(), " in step ", drift.global_step(),
                          "; memory.drift_bound is ", bound);
  }
  job.set_drift_not_measured(report.drift_not_measured());
  return beyond;
}

}  // namespace snug::server

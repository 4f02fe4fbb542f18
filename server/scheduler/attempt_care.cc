#include "server/scheduler/attempt_care.h"

#include "server/metrics/metrics.h"

namespace snug::server {
namespace {

using Stage = AttemptEnd::Stage;

// Why it is to be ended, or null. One that hangs may well send heartbeats.
const char* FaultOf(const AttemptSigns& signs, const SchedulerLimits& limits) {
  if (!signs.greeted && signs.age > limits.hello_timeout) return kNoHello;
  if (signs.bad_messages >= limits.max_bad_messages) return kBadMessages;
  if (signs.greeted && signs.hangs) return kHung;
  if (signs.silent > limits.stuck_after) return kSilent;
  return nullptr;
}

// Asked over the link, then TERM, then KILL; then KILL for the shim. What counts in the end is that
// the lock is free.
void GoOnEnding(const AttemptSigns& signs, absl::Duration now, const SchedulerLimits& limits,
                AttemptEnd& end, Care& care) {
  const absl::Duration term_after = signs.cancelled ? limits.cancel_term : absl::ZeroDuration();
  const absl::Duration kill_after = signs.cancelled ? limits.cancel_kill : limits.kill_grace;
  const absl::Duration told_for = now - end.told;
  // Without a link nobody has heard the request: it may have been told before it dialled.
  if (end.stage == Stage::kTold && (told_for >= term_after || !signs.linked)) {
    end.stage = Stage::kTermSent;
    care.term = true;
  }
  care.kill = told_for >= kill_after;
  care.kill_shim = told_for >= kill_after + limits.shim_grace;
}

}  // namespace

Care CareFor(const AttemptSigns& signs, absl::Duration now, const SchedulerLimits& limits,
             AttemptEnd& end) {
  Care care;
  if (end.stage == Stage::kClosing) return care;
  if (signs.liveness == Liveness::kUnknown) return care;  // Nothing follows from not knowing.
  if (signs.liveness == Liveness::kGone) {
    care.gone = end.stage != Stage::kGone;
    end.stage = Stage::kGone;
    care.close = now >= end.close_again;
    return care;
  }
  if (end.stage == Stage::kGone) return care;  // The kernel has said so: it does not come back.
  if (end.stage == Stage::kRuns) {
    if (!signs.cancelled) care.fault = FaultOf(signs, limits);
    if (signs.cancelled || care.fault != nullptr) {
      end.stage = Stage::kTold;
      end.told = now;
      care.tell = true;
    }
  }
  if (end.begun())
    GoOnEnding(signs, now, limits, end, care);
  else
    care.unreachable = signs.silent > limits.stale_after;
  return care;
}

}  // namespace snug::server

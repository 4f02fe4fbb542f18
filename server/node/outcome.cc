#include "server/node/outcome.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "server/job/transient.h"

namespace snug::server {
namespace {

constexpr int kExitFinished = 0;
constexpr int kExitStopped = 3;
constexpr int kExitFailed = 4;
constexpr const char* kDiskFull = "DISK_FULL";  // The worker's reason.
constexpr absl::Duration kFirstDelay = absl::Seconds(10);
constexpr absl::Duration kMaxDelay = absl::Minutes(10);  // kLongestRetryWaitUs is by it.
constexpr absl::Duration kTransientDelay = absl::Minutes(1);
constexpr double kJitterShare = 0.2;

v1::Error MakeError(const char* reason, std::string message) {
  v1::Error error;
  error.set_reason(reason);
  error.set_message(std::move(message));
  return error;
}

Ending EndingOf(const v1::WorkerResult& result) {
  switch (result.failure_class()) {
    case v1::WorkerResult::FAILURE_CLASS_USER:
      return Ending::kUserError;
    case v1::WorkerResult::FAILURE_CLASS_OUT_OF_MEMORY:
      return Ending::kOutOfMemory;
    default:
      if (result.error().reason() == kDiskFull) return Ending::kDiskFull;
      return IsTransientReason(result.error().reason()) ? Ending::kTransient
                                                        : Ending::kInfrastructure;
  }
}

std::string Ended(const ExitRecord& exit) {
  if (exit.signal != 0)
    return absl::StrCat("the worker was killed by signal ", exit.signal, " (",
                        strsignal(exit.signal), ")");
  return absl::StrCat("the worker ended with exit code ", exit.exit_code);
}

// What only result.json can say.
void JudgeResult(const ExitRecord& exit,
                 const absl::StatusOr<std::optional<v1::WorkerResult>>& read, Outcome& outcome) {
  const bool there = read.ok() && read->has_value();
  if (there) outcome.result = **read;
  if (exit.exit_code == kExitFinished) {
    if (there && outcome.result.outcome() == v1::WorkerResult::OUTCOME_SUCCEEDED) {
      outcome.ending = Ending::kSucceeded;
      return;
    }
    outcome.ending = Ending::kUserError;
    outcome.error =
        MakeError("NO_ARTIFACT",
                  absl::StrCat("the worker ended as if finished, without a result: ",
                               read.ok() ? "no result.json says so" : read.status().message()));
    return;
  }
  outcome.ending = there ? EndingOf(outcome.result) : Ending::kInfrastructure;
  outcome.error = outcome.result.error();
  if (outcome.error.message().empty())
    outcome.error = MakeError("WORKER_FAILED", Ended(exit) + " and gave no reason; see its log");
}

}  // namespace

Outcome Judge(const absl::StatusOr<std::optional<ExitRecord>>& exit,
              const absl::StatusOr<std::optional<v1::WorkerResult>>& result) {
  Outcome outcome;
  if (!exit.ok() || !exit->has_value()) {
    outcome.exit = exit.ok() ? "no exit record" : std::string(exit.status().message());
    outcome.error = MakeError("WORKER_LOST", absl::StrCat("the attempt is gone: ", outcome.exit));
    return outcome;
  }
  const ExitRecord& record = **exit;
  outcome.exit = record.text;
  if (record.signal == 0 && record.exit_code == kExitStopped) {
    outcome.ending = Ending::kStopped;
    if (result.ok() && result->has_value()) outcome.result = **result;
  } else if (record.signal == 0 &&
             (record.exit_code == kExitFinished || record.exit_code == kExitFailed)) {
    JudgeResult(record, result, outcome);
  } else if (record.signal == SIGKILL && record.oom_kills > 0) {
    outcome.ending = Ending::kOutOfMemory;
    outcome.error = MakeError(
        "OUT_OF_MEMORY", absl::StrCat("the kernel ended the worker: its control group ",
                                      record.cgroup, " had all of the memory that it may have"));
  } else {
    outcome.error = MakeError("WORKER_LOST", Ended(record) + "; its log has its last words");
  }
  return outcome;
}

RetryDecision DecideRetry(Ending ending, Failures before, bool progressed, double jitter) {
  RetryDecision decision{.failures = before};
  const double jittered = 1.0 + kJitterShare * jitter;
  if (ending == Ending::kOutOfMemory) {
    decision.failures.oom = before.oom + 1;
    decision.retry = decision.failures.oom <= kMaxOomRetries;
    decision.reason = absl::StrCat("ran out of memory: plans again with more room, try ",
                                   decision.failures.oom, " of ", kMaxOomRetries);
    return decision;
  }
  if (ending == Ending::kDiskFull || ending == Ending::kTransient) {
    const bool room = ending == Ending::kDiskFull;
    if (progressed) decision.failures.infra = 0;
    decision.retry = true;
    decision.delay = (room ? kMaxDelay : kTransientDelay) * jittered;
    decision.reason = room ? "waits for room on the disk" : "waits for that to pass";
    return decision;
  }
  if (ending != Ending::kInfrastructure && ending != Ending::kStopped) return decision;
  decision.failures.infra = progressed ? 1 : before.infra + 1;
  decision.retry = decision.failures.infra <= kMaxInfraRetries;
  if (decision.failures.infra > 1) {
    const absl::Duration doubled = kFirstDelay * std::exp2(decision.failures.infra - 2);
    decision.delay = std::min(doubled, kMaxDelay) * jittered;
  }
  decision.reason = absl::StrCat("its attempt was lost: retry ", decision.failures.infra, " of ",
                                 kMaxInfraRetries);
  return decision;
}

}  // namespace snug::server

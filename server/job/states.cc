#include "server/job/states.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

using v1::Job;

// A worker that ended while the daemon was down may have passed RUNNING unseen: then both moves are
// made, one after the other.
constexpr JobMove kJobMoves[] = {
    {Job::PREPARING, Job::QUEUED},  // Dataset prepared, model checked.
    {Job::PREPARING, Job::FAILED},  // Dataset or model refused, or no plan fits any device.
    {Job::PREPARING, Job::CANCELLED},
    {Job::PREPARING, Job::PAUSED},  // By its user; or held: the daemon ended twice with it in hand.
    {Job::QUEUED, Job::STARTING},   // Plan chosen, bytes reserved, attempt INTENT.
    {Job::QUEUED, Job::FAILED},     // No plan fits any more: the devices have changed.
    {Job::QUEUED, Job::CANCELLED},
    {Job::QUEUED, Job::PAUSED},     // Likewise.
    {Job::STARTING, Job::RUNNING},  // Hello of the current epoch.
    {Job::STARTING, Job::QUEUED},   // Spawn failed or lost; retries left.
    {Job::STARTING, Job::FAILED},   // The job's own error, or retries exhausted.
    {Job::STARTING, Job::PAUSING},
    {Job::STARTING, Job::CANCELLING},
    {Job::RUNNING, Job::SUCCEEDED},  // Exit record good and output verified.
    {Job::RUNNING, Job::FAILED},
    {Job::RUNNING, Job::QUEUED},  // Lost for a reason that is not the job's; retries left.
    {Job::RUNNING, Job::CANCELLING},
    {Job::RUNNING, Job::PAUSING},
    {Job::PAUSING, Job::PAUSED},     // Checkpoint adopted, exit record; or its worker was lost.
    {Job::PAUSING, Job::SUCCEEDED},  // Its last step was done before it heard of it.
    {Job::PAUSING, Job::FAILED},
    {Job::PAUSING, Job::CANCELLING},
    {Job::PAUSED, Job::PREPARING},  // Its dataset was not prepared yet.
    {Job::PAUSED, Job::QUEUED},
    {Job::PAUSED, Job::CANCELLED},
    {Job::CANCELLING, Job::CANCELLED},  // Exit record, or the kill is confirmed.
};

struct AttemptMove {
  AttemptState from;
  AttemptState to;
};

constexpr AttemptMove kAttemptMoves[] = {
    {AttemptState::kIntent, AttemptState::kSpawned},
    {AttemptState::kIntent, AttemptState::kLive},    // Hello came before the spawn was recorded.
    {AttemptState::kIntent, AttemptState::kExited},  // Never started, or ended while unseen.
    {AttemptState::kSpawned, AttemptState::kLive},
    {AttemptState::kSpawned, AttemptState::kExited},
    {AttemptState::kLive, AttemptState::kUnreachable},
    {AttemptState::kLive, AttemptState::kExited},
    {AttemptState::kUnreachable, AttemptState::kLive},
    {AttemptState::kUnreachable, AttemptState::kExited},
    {AttemptState::kExited, AttemptState::kClosed},
};

template <typename State>
absl::Status NoSuchMove(const char* what, State from, State to) {
  return absl::InternalError(
      absl::StrCat("no move of ", what, " from ", NameOf(from), " to ", NameOf(to)));
}

}  // namespace

absl::Span<const JobMove> JobMoves() { return kJobMoves; }

absl::Status CheckMove(JobState from, JobState to) {
  const bool found = std::any_of(std::begin(kJobMoves), std::end(kJobMoves),
                                 [&](JobMove move) { return move.from == from && move.to == to; });
  return found ? absl::OkStatus() : NoSuchMove("a job", from, to);
}

absl::Status CheckMove(AttemptState from, AttemptState to) {
  const bool found =
      std::any_of(std::begin(kAttemptMoves), std::end(kAttemptMoves),
                  [&](AttemptMove move) { return move.from == from && move.to == to; });
  return found ? absl::OkStatus() : NoSuchMove("an attempt", from, to);
}

bool IsTerminal(JobState state) {
  return state == Job::SUCCEEDED || state == Job::FAILED || state == Job::CANCELLED;
}

bool HasAttempt(JobState state) {
  return state == Job::STARTING || state == Job::RUNNING || state == Job::PAUSING ||
         state == Job::CANCELLING;
}

std::string NameOf(JobState state) { return Job::State_Name(state); }

std::string NameOf(AttemptState state) {
  constexpr std::array<const char*, 7> kNames = {"?",           "INTENT", "SPAWNED", "LIVE",
                                                 "UNREACHABLE", "EXITED", "CLOSED"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace snug::server

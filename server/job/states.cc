#include "server/job/states.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "proto/snug/enum_words.h"

namespace snug::server {
namespace {

using v1::Job;

// A worker that ended while the daemon was down may have passed RUNNING unseen: then both moves are
// made, one after the other.
constexpr JobMove kJobMoves[] = {
    {Job::STATE_PREPARING, Job::STATE_QUEUED},  // Dataset prepared, model checked.
    {Job::STATE_PREPARING,
     Job::STATE_FAILED},  // Dataset or model refused, or no plan fits any device.
    {Job::STATE_PREPARING, Job::STATE_CANCELLED},
    {Job::STATE_PREPARING,
     Job::STATE_PAUSED},  // By its user; or held: the daemon ended twice with it in hand.
    {Job::STATE_QUEUED, Job::STATE_STARTING},  // Plan chosen, bytes reserved, attempt INTENT.
    {Job::STATE_QUEUED, Job::STATE_FAILED},    // No plan fits any more: the devices have changed.
    {Job::STATE_QUEUED, Job::STATE_CANCELLED},
    {Job::STATE_QUEUED, Job::STATE_PAUSED},     // Likewise.
    {Job::STATE_STARTING, Job::STATE_RUNNING},  // Hello of the current epoch.
    {Job::STATE_STARTING, Job::STATE_QUEUED},   // Spawn failed or lost; retries left.
    {Job::STATE_STARTING, Job::STATE_FAILED},   // The job's own error, or retries exhausted.
    {Job::STATE_STARTING, Job::STATE_PAUSING},
    {Job::STATE_STARTING, Job::STATE_CANCELLING},
    {Job::STATE_RUNNING, Job::STATE_SUCCEEDED},  // Exit record good and output verified.
    {Job::STATE_RUNNING, Job::STATE_FAILED},
    {Job::STATE_RUNNING,
     Job::STATE_QUEUED},  // Lost for a reason that is not the job's; retries left.
    {Job::STATE_RUNNING, Job::STATE_CANCELLING},
    {Job::STATE_RUNNING, Job::STATE_PAUSING},
    {Job::STATE_PAUSING,
     Job::STATE_PAUSED},  // Checkpoint adopted, exit record; or its worker was lost.
    {Job::STATE_PAUSING, Job::STATE_SUCCEEDED},  // Its last step was done before it heard of it.
    {Job::STATE_PAUSING, Job::STATE_FAILED},
    {Job::STATE_PAUSING, Job::STATE_CANCELLING},
    {Job::STATE_PAUSED, Job::STATE_PREPARING},  // Its dataset was not prepared yet.
    {Job::STATE_PAUSED, Job::STATE_QUEUED},
    {Job::STATE_PAUSED, Job::STATE_CANCELLED},
    {Job::STATE_CANCELLING, Job::STATE_CANCELLED},  // Exit record, or the kill is confirmed.
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
  return state == Job::STATE_SUCCEEDED || state == Job::STATE_FAILED ||
         state == Job::STATE_CANCELLED;
}

bool HasAttempt(JobState state) {
  return state == Job::STATE_STARTING || state == Job::STATE_RUNNING ||
         state == Job::STATE_PAUSING || state == Job::STATE_CANCELLING;
}

std::string NameOf(JobState state) { return EnumWord(state); }

std::string NameOf(AttemptState state) {
  constexpr std::array<const char*, 7> kNames = {"?",           "INTENT", "SPAWNED", "LIVE",
                                                 "UNREACHABLE", "EXITED", "CLOSED"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace snug::server

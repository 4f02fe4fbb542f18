// The states of a job and of an attempt, and the only moves between them, as data.
//
// Every change of a job's or an attempt's state anywhere in the daemon passes CheckMove; the store
// writes it in one transaction with the event that tells of it. Terminal states have no way out.
#ifndef SERVER_JOB_STATES_H_
#define SERVER_JOB_STATES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

using JobState = v1::Job::State;

// One execution of a job. kUnreachable is a condition (the worker's link is silent): the job stays
// RUNNING.
enum class AttemptState : uint8_t {
  kIntent = 1,  // Decided and durable; nothing was started yet.
  kSpawned,
  kLive,
  kUnreachable,
  kExited,  // The shim is gone; what it left behind is being verified.
  kClosed,
};

struct JobMove {
  JobState from;
  JobState to;
};

absl::Span<const JobMove> JobMoves();

// OK, or an internal error that names both states: asking for another move is a programmer's error.
absl::Status CheckMove(JobState from, JobState to);
absl::Status CheckMove(AttemptState from, AttemptState to);

bool IsTerminal(JobState state);
bool HasAttempt(JobState state);  // A job in this state has one attempt that is not closed.

std::string NameOf(JobState state);
std::string NameOf(AttemptState state);

}  // namespace snug::server

#endif  // SERVER_JOB_STATES_H_

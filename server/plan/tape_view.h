// A plan looked at from inside: the tape that it is lowered to, as text and as a timeline of bytes.
#ifndef SERVER_PLAN_TAPE_VIEW_H_
#define SERVER_PLAN_TAPE_VIEW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/plan/planner.h"
#include "snug/v1/service.pb.h"
#include "worker/program/tape.h"

namespace snug::server {

// Of one of PlansFor's plans, with its arguments. What the tape names lies in `program`.
absl::StatusOr<program::Tape> TapeOf(const program::Program& program,
                                     const program::PredictOptions& options, const v1::Plan& plan);

// Neighbouring instructions of one direction in one stretch where there are more than `most`; of a
// stretch, the instant with the most bytes.
std::vector<v1::LiveBytes> TimelineOf(const program::Tape& tape, size_t most);

}  // namespace snug::server

#endif  // SERVER_PLAN_TAPE_VIEW_H_

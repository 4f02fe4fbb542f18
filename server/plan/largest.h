// How far single settings of a job can be raised until no plan fits: found by prediction alone.
#ifndef SERVER_PLAN_LARGEST_H_
#define SERVER_PLAN_LARGEST_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "server/plan/planner.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// Of what may be asked for, and of what there is.
struct LargestLimits {
  int64_t rows = INT32_MAX;
  int64_t micro_batches = INT32_MAX;  // Of an optimizer step.
  int64_t tokens = INT32_MAX;         // Of a sequence; the model has a limit of its own.
  PlanLimits memory = {};
};

// Rows of a batch at the job's other settings: at most as many as a prepared dataset has. 0: none
// fits. What the job has now is tried first.
absl::StatusOr<int64_t> LargestBatch(const program::Program& program, const v1::JobSpec& spec,
                                     const RowLengths& lengths, const PlanMachine& machine,
                                     const LargestLimits& limits);

// Tokens of max_seq_length likewise, at most what the model can. Every row counts in full: what a
// dataset was cut to says nothing of its rows at another length.
absl::StatusOr<int64_t> LargestLength(const program::Program& program, const v1::JobSpec& spec,
                                      const PlanMachine& machine, const LargestLimits& limits);
int64_t ShortestSequence(const v1::JobSpec& spec);  // With room for an answer to a sample prompt.

// Both and the micro-batches of a step, each at the job's other settings, for every fidelity that
// the job might allow, exact first. No fidelity changes a plan that is pinned by hand: there it is
// the job's own alone.
absl::StatusOr<std::vector<v1::LargestSettings>> LargestThatFit(const program::Program& program,
                                                                const v1::JobSpec& spec,
                                                                const RowLengths& lengths,
                                                                const PlanMachine& machine,
                                                                const LargestLimits& limits);

}  // namespace snug::server

#endif  // SERVER_PLAN_LARGEST_H_

// From a checked job and the lengths of its rows to plans with their bytes: what `snug plan` shows
// and what admission chooses from.
//
// Pure: the same arguments always give the same plans, in milliseconds, without a device and
// without weights.
#ifndef SERVER_PLAN_PLANNER_H_
#define SERVER_PLAN_PLANNER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/plan.pb.h"
#include "worker/program/batching.h"
#include "worker/program/planning/predict.h"
#include "worker/program/rates.h"

namespace snug::server {

// Of a dataset that is not prepared yet nothing is known but max_seq_length: then both are empty.
struct RowLengths {
  program::LengthCounts train;
  program::LengthCounts eval;
  // Of the sources that the rows are made of, where the model reads such; else empty.
  program::LengthCounts train_sources;
  program::LengthCounts eval_sources;
  int64_t longest_prompt = 0;  // Of those to be answered at evaluations; 0: not known, or none.
  bool prepared() const { return !train.empty(); }
};

// Whether the job names data to evaluate on.
bool Evaluates(const v1::JobSpec& spec);

// Tokens that a sample prompt may have: with its answer it fits max_seq_length; as a source it does
// by itself.
int64_t MaxPromptTokens(const v1::JobSpec& spec);

// What the plan's numbers depend on beside the job.
struct PlanMachine {
  int threads = 1;
  bool gpu = false;
  int64_t context_bytes = 0;
  program::MachineRates rates = {};
  // What plans may offload to where a job leaves memory.host_budget open: beside a GPU what the
  // node can spare; nothing beside a CPU, whose memory is the host's.
  int64_t host_bytes = 0;
  auto operator<=>(const PlanMachine&) const = default;
};

// How the job makes micro-batches of rows.
program::Batching BatchingOf(const v1::JobSpec& spec);

// Steps from one measurement of an inexact gradient to the next, at least; 0: there is none. Also
// of a job that an older version has stored.
int64_t DriftSteps(const v1::JobSpec& spec);

program::PredictOptions OptionsFor(const program::Program& program, const v1::JobSpec& spec,
                                   const RowLengths& lengths, const PlanMachine& machine);

// What a worker needs that answers prompts with a model and trains nothing: prompts of so many
// tokens at most, answers of `new_tokens` at most. It has no choice of plans.
absl::StatusOr<v1::Plan> AnsweringPlan(const program::Program& frozen, int64_t prompt_tokens,
                                       int64_t new_tokens, const PlanMachine& machine);

// Fastest first. One plan when the job pins it by hand. Of each of the list's limits, and of the
// job's own budget, the plan that is chosen for it has been lowered in full.
absl::StatusOr<std::vector<v1::Plan>> PlansFor(const program::Program& program,
                                               const v1::JobSpec& spec, const RowLengths& lengths,
                                               const PlanMachine& machine,
                                               program::PlanList list = {});

// The plan that a job pins by hand, as program::PinnedPlan reads it: without the head, which is in
// a loop under every plan. Empty: it pins none.
std::map<std::string, program::SiteStash> PatternsOf(const v1::JobSpec& spec,
                                                     const program::ModelConfig& config);

// The user's own limit; INT64_MAX for "auto".
int64_t BudgetBytes(const v1::JobSpec& spec);

// What a plan may keep in the host's memory; empty for "auto".
std::optional<int64_t> HostBudgetBytes(const v1::JobSpec& spec);

// Index of the first (fastest) plan of at most so many bytes on the device and in the host, or -1.
int FirstThatFits(const std::vector<v1::Plan>& plans, int64_t limit_bytes,
                  int64_t host_limit_bytes = INT64_MAX);

struct PlanLimits {
  int64_t device_bytes = INT64_MAX;
  int64_t host_bytes = INT64_MAX;
};

// The smallest of PlansFor's plans, without working out the others: those that offload where the
// job names a budget for it. None where a pinned plan offloads more than that.
absl::StatusOr<std::vector<v1::Plan>> SmallestPlans(const program::Program& program,
                                                    const v1::JobSpec& spec,
                                                    const RowLengths& lengths,
                                                    const PlanMachine& machine);

// Whether one of these is within the limits.
absl::StatusOr<bool> AnyPlanFits(const program::Program& program, const v1::JobSpec& spec,
                                 const RowLengths& lengths, const PlanMachine& machine,
                                 const PlanLimits& limits);

// Index of the plan that needs the fewest bytes.
int SmallestOf(const std::vector<v1::Plan>& plans);

// Why none fits: the bytes of the smallest plan, by name, and what there is.
std::string RefusalOf(const std::vector<v1::Plan>& plans, const std::string& device,
                      int64_t capacity_bytes, int64_t budget_bytes);

// The same where only the host's memory is too small for what plans keep there: at least one needs
// no more than `limit_bytes` of the device.
std::string HostRefusalOf(const std::vector<v1::Plan>& plans, int64_t limit_bytes,
                          int64_t host_limit_bytes);

std::vector<v1::Site> SitesOf(const program::Program& program, int64_t tokens);

}  // namespace snug::server

#endif  // SERVER_PLAN_PLANNER_H_

// program::Plan and its prediction -> the schema's Plan, which is stored with the attempt and sent
// to the worker, whose link reads it back.
#ifndef SERVER_PLAN_PLAN_PROTO_H_
#define SERVER_PLAN_PLAN_PROTO_H_

#include <optional>

#include "absl/status/statusor.h"
#include "snug/v1/plan.pb.h"
#include "worker/program/planning/named_plan.h"
#include "worker/program/planning/predict.h"

namespace snug::server {

// Empty: no kind that is known here.
std::optional<program::Stash> StashFrom(v1::StashKind kind);

// Empty: not given.
std::optional<double> RhoOf(const v1::StashOptions& options);

// A kind with what the message says of it.
program::SiteStash WithOptions(program::Stash kind, const v1::StashOptions& options);

v1::TapeKey ToProto(const program::TapeKey& key);

// Of an optimizer step: so many micro-batches, and what the optimizer does once.
struct StepShape {
  int64_t accumulation = 1;
  double optimizer_seconds = 0.0;
};

v1::Plan ToProto(const program::Program& program, const program::Prediction& prediction,
                 const program::LowerOptions& lower, const StepShape& step);

// Errors: a way of keeping a value that this version does not know.
absl::StatusOr<program::NamedPlan> FromProto(const v1::Plan& plan);

}  // namespace snug::server

#endif  // SERVER_PLAN_PLAN_PROTO_H_

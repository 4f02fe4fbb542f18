// program::Plan and its prediction <-> the schema's Plan, which is stored with the attempt and sent
// to the worker.
#ifndef SERVER_PLAN_PLAN_PROTO_H_
#define SERVER_PLAN_PLAN_PROTO_H_

#include "absl/status/statusor.h"
#include "snug/v1/plan.pb.h"
#include "worker/program/predict.h"

namespace snug::server {

v1::Plan ToProto(const program::Prediction& prediction, const program::LowerOptions& lower);

// Errors: a recipe or an index that does not fit the program.
absl::StatusOr<program::Plan> FromProto(const v1::Plan& plan, const program::Program& program);

}  // namespace snug::server

#endif  // SERVER_PLAN_PLAN_PROTO_H_

// program::Plan and its prediction -> the schema's Plan, which is stored with the attempt and sent
// to the worker, whose link reads it back.
#ifndef SERVER_PLAN_PLAN_PROTO_H_
#define SERVER_PLAN_PLAN_PROTO_H_

#include <optional>

#include "snug/v1/plan.pb.h"
#include "worker/program/predict.h"

namespace snug::server {

// Empty: no kind that is known here.
std::optional<program::Stash> StashFrom(v1::StashKind kind);

v1::Plan ToProto(const program::Prediction& prediction, const program::LowerOptions& lower);

}  // namespace snug::server

#endif  // SERVER_PLAN_PLAN_PROTO_H_

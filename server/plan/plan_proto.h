// program::Plan and its prediction -> the schema's Plan, which is stored with the attempt and sent
// to the worker, whose link reads it back.
#ifndef SERVER_PLAN_PLAN_PROTO_H_
#define SERVER_PLAN_PLAN_PROTO_H_

#include "snug/v1/plan.pb.h"
#include "worker/program/predict.h"

namespace snug::server {

v1::Plan ToProto(const program::Program& program, const program::Prediction& prediction,
                 const program::LowerOptions& lower);

}  // namespace snug::server

#endif  // SERVER_PLAN_PLAN_PROTO_H_

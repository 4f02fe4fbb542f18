// What snug-inspect says of a model's files, as messages, and back. What comes back is another
// process's word: within the limits that reading itself keeps, or it is refused.
#ifndef SERVER_INSPECT_FACTS_H_
#define SERVER_INSPECT_FACTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snug/v1/inspect.pb.h"
#include "worker/program/model_config.h"

namespace snug::server {

v1::ModelFacts FactsOf(const program::ModelConfig& config);
absl::StatusOr<program::ModelConfig> ConfigOf(const v1::ModelFacts& facts);

// Code, message and every detail. What comes back is an error, whatever its code says.
v1::InspectError ErrorOf(const absl::Status& status);
absl::Status StatusOf(const v1::InspectError& error);

}  // namespace snug::server

#endif  // SERVER_INSPECT_FACTS_H_

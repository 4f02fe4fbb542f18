// assignment.binpb -> plain structs, and plain structs -> result.json. With worker_link.h the only
// protobuf in the worker; no torch here.
#ifndef WORKER_LINK_ASSIGNMENT_H_
#define WORKER_LINK_ASSIGNMENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/train/attempt.h"

namespace snug::link {

// Errors name the file and what is missing in it.
absl::StatusOr<train::AttemptOptions> ReadAssignment(const std::string& path);

// The TrainingOptions and mode of a JobSpec in proto JSON, defaults filled in: for tools that run
// without a daemon.
struct SpecOptions {
  program::TaskChoice task;
  program::TrainingMode mode;
  train::TrainingOptions training;
};
absl::StatusOr<SpecOptions> ParseSpecJson(const std::string& json);

// <attempt dir>/result.json: written aside, fsynced, renamed.
absl::Status WriteResult(const std::string& attempt_dir, const train::AttemptResult& result);

}  // namespace snug::link

#endif  // WORKER_LINK_ASSIGNMENT_H_

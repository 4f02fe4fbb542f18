// Every error that a user sees, as a status that carries its google.rpc details: the reason
// (UPPER_SNAKE), the fields, when to try again. Details ride on the status as payloads, so that
// they survive until a door (server/grpc/, server/http/) turns them into an answer.
#ifndef SERVER_JOB_ERRORS_H_
#define SERVER_JOB_ERRORS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// One thing wrong with one field of a request.
struct Violation {
  std::string field;  // spec.training.max_steps
  std::string message;
  std::string reason;     // UPPER_SNAKE; of the first violation it becomes the error's.
  bool may_pass = false;  // Its file is away, or cannot be opened now.
};

absl::Status WithReason(absl::Status status, absl::string_view reason);

absl::Status InvalidRequest(const std::vector<Violation>& violations);
absl::Status RequestTooLarge(size_t bytes, size_t most);
absl::Status JobNotFound(absl::string_view id);
absl::Status AmbiguousJob(absl::string_view id, int matches);
absl::Status JobOfManyTenants(absl::string_view id, int tenants);
absl::Status JobExists(absl::string_view id);
absl::Status RequestIdReused(absl::string_view request_id, absl::string_view job);
absl::Status WrongState(absl::string_view id, absl::string_view what, absl::string_view state);
absl::Status PlanInfeasible(absl::string_view message, int64_t smallest_bytes);
absl::Status Draining();
absl::Status QueueFull(absl::string_view what, int64_t limit);
// What a tenant may not have: its setting in the daemon's configuration, the limit, and what there
// would be with this.
struct QuotaUse {
  std::string tenant;
  std::string field;
  int64_t limit = 0;
  int64_t value = 0;
};
absl::Status QuotaExceeded(const QuotaUse& use);
absl::Status TooFast(absl::string_view who, int per_second);
absl::Status StoreFull();

// The reason on a status: its ErrorInfo's, or one after its code (INTERNAL, NOT_FOUND, ...).
std::string ReasonOf(const absl::Status& status);

// Whether each violation of an invalid request may pass.
bool MayPass(const absl::Status& status);

// The fields that a status of InvalidRequest names, each with what is wrong.
std::vector<std::pair<std::string, std::string>> FieldsOf(const absl::Status& status);

// A job's own error: reason, message and the first field that the status names.
v1::Error ToJobError(const absl::Status& status);

}  // namespace snug::server

#endif  // SERVER_JOB_ERRORS_H_

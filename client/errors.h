// What the daemon refused, in words for the user.
#ifndef CLIENT_ERRORS_H_
#define CLIENT_ERRORS_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/json.h"
#include "grpcpp/support/status.h"

namespace snug::client {

// A field of the request (spec.training.max_steps) as the job file has it.
std::string FilePath(absl::string_view field);

// The message, then a line for each detail of the google.rpc.Status that came with it: every bad
// field by its path in the job file, the reason, when to try again. The details themselves ride
// along as a payload, for ErrorToJson.
absl::Status ToStatus(const grpc::Status& status);

// {"error": {"reason", "message", "field"[, "line"][, "fields": [{"field"[, "line"], "message"},
// ...]]}}: as a job's own error, and all bad fields of a request or of a job file. `line_of`: where
// the job file has a field that the daemon refuses; 0: nowhere.
using LineOf = std::function<int(const std::string& field)>;
Json ErrorToJson(const absl::Status& status, const LineOf& line_of = nullptr);

}  // namespace snug::client

#endif  // CLIENT_ERRORS_H_

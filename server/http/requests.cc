#include "server/http/requests.h"

#include <httplib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/http/snapshot.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

std::string BearerOf(const httplib::Request& request) {
  const std::string header = request.get_header_value("Authorization");
  return absl::StartsWithIgnoreCase(header, "Bearer ") ? header.substr(7) : "";
}

bool HasBody(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length");
  return request.has_header("Transfer-Encoding") || lengths > 1 ||
         (lengths == 1 && request.get_header_value("Content-Length") != "0");
}

int HttpCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

void Refuse(const absl::Status& status, httplib::Response& response) {
  response.status = HttpCode(status);
  if (response.status == 401) response.set_header("WWW-Authenticate", "Bearer");
  v1::Error error;
  error.set_reason(absl::StatusCodeToString(status.code()));
  error.set_message(std::string(status.message()));
  response.set_content(absl::StrCat("{\"error\":", JsonOf(error), "}\n"), "application/json");
}

}  // namespace snug::server

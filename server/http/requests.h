// What all parts of the HTTP server do with a request and an answer.
#ifndef SERVER_HTTP_REQUESTS_H_
#define SERVER_HTTP_REQUESTS_H_

#include <string>

#include "absl/status/status.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace snug::server {

// Of "Authorization: Bearer SECRET"; empty: there is none.
std::string BearerOf(const httplib::Request& request);

// Whether a body comes with it. Where it says so twice, it may.
bool HasBody(const httplib::Request& request);

// The status code of HTTP that says the same.
int HttpCode(const absl::Status& status);

// {"error": {"reason", "message"}}, with its code.
void Refuse(const absl::Status& status, httplib::Response& response);

}  // namespace snug::server

#endif  // SERVER_HTTP_REQUESTS_H_

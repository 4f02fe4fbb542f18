// Calls of other machines over TLS.
#ifndef SERVER_HTTP_HTTPS_CLIENT_H_
#define SERVER_HTTP_HTTPS_CLIENT_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace snug::server {

struct HttpsPost {
  std::string host;
  int port = 443;
  std::string path;
  std::map<std::string, std::string> headers;
  std::string body;    // JSON.
  std::string tls_ca;  // Authorities that the certificate may be by, in PEM; empty: the system's.
};

// The status code of the answer, whose body is not read far; a redirection is not followed.
// UNAVAILABLE: nobody answered whose certificate is right. Some seconds at most.
absl::StatusOr<int> Post(const HttpsPost& post);

}  // namespace snug::server

#endif  // SERVER_HTTP_HTTPS_CLIENT_H_

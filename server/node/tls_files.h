// The certificate and the key of an address that the daemon listens on.
#ifndef SERVER_NODE_TLS_FILES_H_
#define SERVER_NODE_TLS_FILES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// INVALID_ARGUMENT with what is missing of `setting`: listen or listen_http.
absl::Status CheckListen(absl::string_view setting, const v1::ListenConfig& config);

// Reads them. INVALID_ARGUMENT with the file that is not what it has to be.
absl::Status CheckTlsFiles(const v1::ListenConfig& config);

}  // namespace snug::server

#endif  // SERVER_NODE_TLS_FILES_H_

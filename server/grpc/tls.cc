#include "server/grpc/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "proto/snug/status_macros.h"
#include "server/node/tls_files.h"

namespace snug::server {
namespace {

constexpr unsigned kLookAgainSeconds = 60;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TlsCredentials(
    const v1::ListenConfig& config) {
  using grpc::experimental::FileWatcherCertificateProvider;
  RETURN_IF_ERROR(CheckListen("listen", config));
  RETURN_IF_ERROR(CheckTlsFiles(config));
  const bool mutual = !config.tls_ca().empty();
  auto files = mutual ? std::make_shared<FileWatcherCertificateProvider>(
                            config.tls_key(), config.tls_cert(), config.tls_ca(), kLookAgainSeconds)
                      : std::make_shared<FileWatcherCertificateProvider>(
                            config.tls_key(), config.tls_cert(), kLookAgainSeconds);
  grpc::experimental::TlsServerCredentialsOptions options(files);
  options.watch_identity_key_cert_pairs();
  if (mutual) options.watch_root_certs();
  options.set_cert_request_type(mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                       : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  return grpc::experimental::TlsServerCredentials(options);
}

}  // namespace snug::server

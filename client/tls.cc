#include "client/tls.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"

namespace snug::client {
namespace {

absl::StatusOr<std::string> ReadFile(const char* option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat(option, " ", path, ": cannot read it"));
  return text;
}

// Of the file, else of the environment. Empty: there is none.
absl::StatusOr<std::string> TokenOf(const Server& server) {
  std::string token;
  if (!server.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadFile("--token-file", server.token_file));
  } else if (const char* given = std::getenv("SNUG_TOKEN")) {
    token = given;
  }
  token = std::string(absl::StripAsciiWhitespace(token));
  const auto shows = [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); };
  if (std::all_of(token.begin(), token.end(), shows)) return token;
  return absl::InvalidArgumentError("the token holds characters that no token has");
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> TlsChannel(const Server& server,
                                                          const grpc::ChannelArguments& arguments) {
  absl::string_view target = server.name;
  absl::ConsumePrefix(&target, "https://");
  absl::ConsumeSuffix(&target, "/");
  if (target.rfind(':') == absl::string_view::npos || target.find('/') != absl::string_view::npos)
    return absl::InvalidArgumentError(
        absl::StrCat("--server ", server.name, ": must be https://HOST:PORT"));
  if (server.tls_cert.empty() != server.tls_key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key belong together");
  grpc::SslCredentialsOptions options;
  if (!server.tls_ca.empty()) {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadFile("--tls-ca", server.tls_ca));
  }
  if (!server.tls_cert.empty()) {
    ASSIGN_OR_RETURN(options.pem_cert_chain, ReadFile("--tls-cert", server.tls_cert));
    ASSIGN_OR_RETURN(options.pem_private_key, ReadFile("--tls-key", server.tls_key));
  }
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::SslCredentials(options);
  ASSIGN_OR_RETURN(const std::string token, TokenOf(server));
  if (!token.empty())
    credentials =
        grpc::CompositeChannelCredentials(credentials, grpc::AccessTokenCredentials(token));
  return grpc::CreateCustomChannel(std::string(target), credentials, arguments);
}

}  // namespace snug::client

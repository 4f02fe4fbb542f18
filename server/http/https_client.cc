#include "server/http/https_client.h"

#include <httplib.h>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr time_t kPatienceSeconds = 5;  // To connect, and for each piece of the answer.
constexpr size_t kMaxAnswerBytes = 64 << 10;

}  // namespace

absl::StatusOr<int> Post(const HttpsPost& post) {
  httplib::SSLClient client(post.host, post.port);
  client.set_connection_timeout(kPatienceSeconds);
  client.set_read_timeout(kPatienceSeconds);
  client.set_write_timeout(kPatienceSeconds);
  client.enable_server_certificate_verification(true);
  if (!post.tls_ca.empty()) client.set_ca_cert_path(post.tls_ca.c_str());
  httplib::Request request;
  request.method = "POST";
  request.path = post.path;
  request.body = post.body;
  request.headers = {post.headers.begin(), post.headers.end()};
  request.set_header("Content-Type", "application/json");
  request.set_header("User-Agent", "snug");
  int code = 0;
  size_t read = 0;
  request.response_handler = [&code](const httplib::Response& response) {
    code = response.status;
    return true;
  };
  request.content_receiver = [&read](const char*, size_t bytes, uint64_t, uint64_t) {
    read += bytes;
    return read <= kMaxAnswerBytes;
  };
  const httplib::Result result = client.send(request);
  if (result) return result->status;
  if (code != 0) return code;  // It has said so before the rest broke off.
  return absl::UnavailableError(absl::StrCat("no answer: ", httplib::to_string(result.error())));
}

}  // namespace snug::server

#include "server/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"
#include "server/http/acceptor.h"
#include "server/http/connection.h"
#include "server/http/requests.h"
#include "server/metrics/metrics.h"
#include "server/node/tcp_socket.h"
#include "server/node/tls_files.h"

namespace snug::server {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kMetricsPath = "/metrics";
constexpr int kMostPort = 65535;
// Of an upload: every other body is read by who knows how much of it he wants.
constexpr size_t kMaxRequestBytes = size_t{17} << 30;

// A name that leads here by a foreign DNS server would let a foreign page read what is served.
bool NamesLoopback(const httplib::Request& request, int port) {
  const std::string host = request.get_header_value("Host");
  for (const char* name : {"127.0.0.1", "localhost", "[::1]"})
    if (host == name || host == absl::StrCat(name, ":", port)) return true;
  return false;
}

void SetLimits(httplib::Server& server) {
  // Without SO_REUSEPORT, which would share a port with whoever has it already.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_keep_alive_timeout(absl::ToInt64Seconds(kMostSilence));  // Clients are told it.
  server.set_payload_max_length(kMaxRequestBytes);
  server.set_default_headers({
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy",
       "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
  });
}

// httplib takes such a body into memory whole, whoever sends it: no route reads it. (A dot in a
// route's pattern stands for no line break.)
bool HasBodyForNobody(const httplib::Request& request) {
  const std::string& method = request.method;
  if (method == "POST") return request.path.find_first_of("\r\n") != std::string::npos;
  if (method == "DELETE") return HasBody(request);
  return method == "PUT" || method == "PATCH" || method == "PRI";
}

// `loopback_port`: known once the server is bound; nullptr over TLS, where the certificate is proof
// of the name.
void RefuseAtTheGate(httplib::Server& server, const int* loopback_port) {
  using Handled = httplib::Server::HandlerResponse;
  const auto is_foreign = [loopback_port](const httplib::Request& request) {
    return loopback_port != nullptr && request.path != kMetricsPath &&
           !NamesLoopback(request, *loopback_port);
  };
  server.set_pre_routing_handler(
      [is_foreign](const httplib::Request& request, httplib::Response& response) {
        const bool foreign = is_foreign(request);
        // httplib unpacks a body before anybody looks at it: a kilobyte may become a gigabyte.
        const bool packed = request.has_header("Content-Encoding");
        if (!foreign && !packed && !HasBodyForNobody(request)) return Handled::Unhandled;
        response.status = foreign ? 421 : packed ? 415 : 405;
        response.set_content(foreign  ? "this server is 127.0.0.1 and localhost alone\n"
                             : packed ? "send the body as it is, without Content-Encoding\n"
                                      : "nothing here reads such a body\n",
                             "text/plain");
        return Handled::Handled;
      });
}

// Of a handshake: what has replaced the files meanwhile counts from now on. 0 refuses.
int UseFiles(SSL* connection, void* argument) {
  const auto& files = *static_cast<const v1::ListenConfig*>(argument);
  return SSL_use_certificate_chain_file(connection, files.tls_cert().c_str()) == 1 &&
         SSL_use_PrivateKey_file(connection, files.tls_key().c_str(), SSL_FILETYPE_PEM) == 1;
}

// `config` outlives the context. nullptr: OpenSSL gives none.
TlsContext MakeTlsContext(v1::ListenConfig& config) {
  TlsContext context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_cert_cb(context.get(), UseFiles, &config);
  const int set = SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  return set == 1 ? std::move(context) : nullptr;
}

}  // namespace

HttpServer::HttpServer() = default;
HttpServer::~HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(int port, const Routes& routes) {
  auto http = absl::WrapUnique(new HttpServer);
  http->server_ = std::make_unique<Acceptor>(nullptr);
  RefuseAtTheGate(*http->server_, &http->port_);
  RETURN_IF_ERROR(http->Serve(kLoopback, port, routes));
  return http;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::StartTls(const v1::ListenConfig& config,
                                                                 const Routes& routes) {
  ASSIGN_OR_RETURN(const HostAndPort place, SplitAddress(config.address()));
  int port = 0;
  if (!absl::SimpleAtoi(place.port, &port) || port < 0 || port > kMostPort)
    return absl::InvalidArgumentError(
        absl::StrCat("listen_http ", config.address(), ": the port is a number up to ", kMostPort));
  RETURN_IF_ERROR(CheckTlsFiles(config));
  auto http = absl::WrapUnique(new HttpServer);
  http->config_ = config;
  TlsContext context = MakeTlsContext(http->config_);
  if (context == nullptr) return absl::InternalError("OpenSSL gives no context for TLS");
  http->server_ = std::make_unique<Acceptor>(std::move(context));
  RefuseAtTheGate(*http->server_, nullptr);
  RETURN_IF_ERROR(http->Serve(place.host, port, routes));
  return http;
}

absl::Status HttpServer::Serve(const std::string& host, int port, const Routes& routes) {
  host_ = host;
  SetLimits(*server_);
  routes(*server_);
  port_ = server_->Bind(host_, port);
  if (port_ <= 0)
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", host_, ":", port,
                                               ": it is no address of this machine, or taken"));
  server_->Begin();
  return absl::OkStatus();
}

std::string HttpServer::address() const {
  const bool v6 = absl::StrContains(host_, ":");
  return absl::StrCat(v6 ? "[" : "", host_, v6 ? "]:" : ":", port_);
}

void ServeMetrics(httplib::Server& server, const Metrics& metrics, MayScrape may_scrape) {
  server.Get(kMetricsPath, [&metrics, may_scrape = std::move(may_scrape)](
                               const httplib::Request& request, httplib::Response& response) {
    const absl::Status may =
        request.ssl == nullptr ? absl::OkStatus() : may_scrape(BearerOf(request));
    if (!may.ok()) return Refuse(may, response);
    response.set_content(metrics.Text(), "text/plain; version=0.0.4; charset=utf-8");
  });
}

}  // namespace snug::server

#include "server/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/snug/status_macros.h"
#include "server/http/requests.h"
#include "server/metrics/metrics.h"
#include "server/node/tcp_socket.h"
#include "server/node/tls_files.h"

namespace snug::server {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kMetricsPath = "/metrics";
constexpr int kMostPort = 65535;
// Connections that are served at a time: forty that are slow hold nobody up.
constexpr size_t kThreads = 64;
constexpr int kMostConnections = 128;  // With those that wait.
constexpr time_t kReadSeconds = 2;     // For a client that has connected, and is silent.
constexpr time_t kWriteSeconds = 10;   // For one that does not take its answer.
constexpr time_t kKeepAliveSeconds = 2;
// Of an upload: every other body is read by who knows how much of it he wants.
constexpr size_t kMaxRequestBytes = size_t{17} << 30;

// A name that leads here by a foreign DNS server would let a foreign page read what is served.
bool NamesLoopback(const httplib::Request& request, int port) {
  const std::string host = request.get_header_value("Host");
  for (const char* name : {"127.0.0.1", "localhost", "[::1]"})
    if (host == name || host == absl::StrCat(name, ":", port)) return true;
  return false;
}

// Hands connections to threads. While kMostWaiting of them wait for one, no more are accepted: each
// holds a descriptor.
class BoundedPool : public httplib::TaskQueue {
 public:
  void enqueue(std::function<void()> serve) override {
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](int* connections) { return *connections < kMostConnections; }, &connections_));
      ++connections_;
    }
    pool_.enqueue([this, serve = std::move(serve)] {
      serve();
      absl::MutexLock lock(&mutex_);
      --connections_;
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  absl::Mutex mutex_;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;
  httplib::ThreadPool pool_{kThreads};
};

void SetLimits(httplib::Server& server) {
  server.new_task_queue = [] { return new BoundedPool; };
  // Without SO_REUSEPORT, which would share a port with whoever has it already.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_read_timeout(kReadSeconds);
  server.set_write_timeout(kWriteSeconds);
  server.set_keep_alive_timeout(kKeepAliveSeconds);
  server.set_payload_max_length(kMaxRequestBytes);
  server.set_default_headers({
      {"Cache-Control", "no-store"},
      {"Content-Security-Policy",
       "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'"},
      {"Referrer-Policy", "no-referrer"},
      {"X-Content-Type-Options", "nosniff"},
  });
}

// Over TLS the certificate is proof of the name. `port` is known once the server is bound.
void HearLoopbackAlone(httplib::Server& server, const int& port) {
  using Handled = httplib::Server::HandlerResponse;
  server.set_pre_routing_handler(
      [&port](const httplib::Request& request, httplib::Response& response) {
        if (request.path == kMetricsPath || NamesLoopback(request, port)) return Handled::Unhandled;
        response.status = 421;
        response.set_content("this server is 127.0.0.1 and localhost alone\n", "text/plain");
        return Handled::Handled;
      });
}

// Of a handshake: what has replaced the files meanwhile counts from now on. 0 refuses.
int UseFiles(SSL* connection, void* argument) {
  const auto& files = *static_cast<const v1::ListenConfig*>(argument);
  return SSL_use_certificate_chain_file(connection, files.tls_cert().c_str()) == 1 &&
         SSL_use_PrivateKey_file(connection, files.tls_key().c_str(), SSL_FILETYPE_PEM) == 1;
}

// `config` outlives the context.
bool SetUpTls(v1::ListenConfig& config, SSL_CTX& context) {
  SSL_CTX_set_cert_cb(&context, UseFiles, &config);
  return SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION) == 1;
}

}  // namespace

HttpServer::HttpServer() = default;

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(int port, const Routes& routes) {
  auto http = absl::WrapUnique(new HttpServer);
  http->server_ = std::make_unique<httplib::Server>();
  HearLoopbackAlone(*http->server_, http->port_);
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
  http->server_ = std::make_unique<httplib::SSLServer>(
      [&http](SSL_CTX& context) { return SetUpTls(http->config_, context); });
  if (!http->server_->is_valid()) return absl::InternalError("OpenSSL gives no context for TLS");
  RETURN_IF_ERROR(http->Serve(place.host, port, routes));
  return http;
}

absl::Status HttpServer::Serve(const std::string& host, int port, const Routes& routes) {
  host_ = host;
  SetLimits(*server_);
  routes(*server_);
  if (port == 0)
    port_ = server_->bind_to_any_port(host_);
  else if (server_->bind_to_port(host_, port))
    port_ = port;
  if (port_ <= 0)
    return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", host_, ":", port,
                                               ": it is no address of this machine, or taken"));
  thread_ = std::thread([this] {
    server_->listen_after_bind();
    ended_ = true;
  });
  return absl::OkStatus();
}

std::string HttpServer::address() const {
  const bool v6 = absl::StrContains(host_, ":");
  return absl::StrCat(v6 ? "[" : "", host_, v6 ? "]:" : ":", port_);
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  while (!server_->is_running() && !ended_) std::this_thread::yield();  // Else it hears nothing.
  server_->stop();
  thread_.join();
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

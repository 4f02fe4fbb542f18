#include "server/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <string>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/metrics/metrics.h"

namespace snug::server {
namespace {

constexpr const char* kAddress = "127.0.0.1";
constexpr const char* kMetricsPath = "/metrics";
constexpr size_t kThreads = 16;       // Connections that are served at a time.
constexpr time_t kReadSeconds = 2;    // For a client that has connected, and is silent.
constexpr time_t kWriteSeconds = 10;  // For one that does not take its answer.
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

void SetUp(httplib::Server& server, const int& port) {
  using Handled = httplib::Server::HandlerResponse;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
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
  server.set_pre_routing_handler([&port](const httplib::Request& request,
                                         httplib::Response& response) {
    if (request.path == kMetricsPath || NamesLoopback(request, port)) return Handled::Unhandled;
    response.status = 421;
    response.set_content("this server is 127.0.0.1 and localhost alone\n", "text/plain");
    return Handled::Handled;
  });
}

}  // namespace

HttpServer::HttpServer() : server_(std::make_unique<httplib::Server>()) {}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(
    int port, const std::function<void(httplib::Server&)>& routes) {
  auto http = absl::WrapUnique(new HttpServer());
  httplib::Server& server = *http->server_;
  SetUp(server, http->port_);
  routes(server);
  const bool bound =
      port == 0 ? (http->port_ = server.bind_to_any_port(kAddress)) > 0
                : server.bind_to_port(kAddress, port);
  if (!bound)
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", kAddress, ":", port, ": somebody has the port"));
  if (port != 0) http->port_ = port;
  http->thread_ = std::thread([raw = http.get()] {
    raw->server_->listen_after_bind();
    raw->ended_ = true;
  });
  return http;
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  while (!server_->is_running() && !ended_) std::this_thread::yield();  // Else it hears nothing.
  server_->stop();
  thread_.join();
}

void ServeMetrics(httplib::Server& server, const Metrics& metrics) {
  server.Get(kMetricsPath, [&metrics](const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics.Text(), "text/plain; version=0.0.4; charset=utf-8");
  });
}

}  // namespace snug::server

// The daemon's HTTP server: metrics for Prometheus and the status page, on loopback alone.
#ifndef SERVER_HTTP_HTTP_SERVER_H_
#define SERVER_HTTP_HTTP_SERVER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"

namespace httplib {
class Server;
}

namespace snug::server {

class Metrics;

class HttpServer {
 public:
  // On 127.0.0.1; port 0: a free one. `routes` fills the server before it serves. UNAVAILABLE: the
  // port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      int port, const std::function<void(httplib::Server&)>& routes);
  // Ends when the answers under way have ended.
  ~HttpServer();

  int port() const { return port_; }

 private:
  HttpServer();

  std::unique_ptr<httplib::Server> server_;
  int port_ = 0;
  std::atomic<bool> ended_ = false;  // It serves no more.
  std::thread thread_;
};

// GET /metrics, which needs no token: it is a scrape's.
void ServeMetrics(httplib::Server& server, const Metrics& metrics);

}  // namespace snug::server

#endif  // SERVER_HTTP_HTTP_SERVER_H_

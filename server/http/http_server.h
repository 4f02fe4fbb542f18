// The daemon's HTTP servers: on loopback, and over TLS on the addresses of listen_http.
#ifndef SERVER_HTTP_HTTP_SERVER_H_
#define SERVER_HTTP_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "snug/v1/config.pb.h"

namespace httplib {
class Server;
}

namespace snug::server {

class Acceptor;
class Metrics;

class HttpServer {
 public:
  // Fills a server before it serves.
  using Routes = std::function<void(httplib::Server&)>;

  // On 127.0.0.1; port 0: a free one. UNAVAILABLE: the port is taken.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(int port, const Routes& routes);
  // Over TLS 1.2 or later. The certificate and its key are read again for each connection.
  // INVALID_ARGUMENT: the address or a file is not what it has to be.
  static absl::StatusOr<std::unique_ptr<HttpServer>> StartTls(const v1::ListenConfig& config,
                                                              const Routes& routes);
  // Ends when the answers under way have ended.
  ~HttpServer();

  int port() const { return port_; }
  std::string address() const;  // HOST:PORT

 private:
  HttpServer();
  absl::Status Serve(const std::string& host, int port, const Routes& routes);

  v1::ListenConfig config_;  // Over TLS: what each handshake looks up.
  std::string host_;
  int port_ = 0;
  std::unique_ptr<Acceptor> server_;  // Its threads use what is above.
};

// Whether who shows this secret may read the metrics of all jobs.
using MayScrape = std::function<absl::Status(const std::string& secret)>;

// GET /metrics. Over TLS `may_scrape` is asked; on loopback it is anybody's.
void ServeMetrics(httplib::Server& server, const Metrics& metrics, MayScrape may_scrape);

}  // namespace snug::server

#endif  // SERVER_HTTP_HTTP_SERVER_H_

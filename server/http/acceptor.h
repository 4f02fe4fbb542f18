// httplib's server, but for how it comes by connections. httplib's own loop stops listening for
// good at most errors of accept, as when the machine has no descriptors left; this one says so in
// the log, and goes on. Its connections wait for their clients as connection.h says.
#ifndef SERVER_HTTP_ACCEPTOR_H_
#define SERVER_HTTP_ACCEPTOR_H_

#include <httplib.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/node/connection_caps.h"

namespace snug::server {

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, FreeTlsContext>;

class Acceptor : public httplib::Server {
 public:
  // `tls`: nullptr for plain connections, which are all from this machine: of one address.
  explicit Acceptor(TlsContext tls);
  // Ends when the answers under way have ended.
  ~Acceptor() override;

  // Gives the port, of 0 a free one; -1: it is no address of this machine, or taken.
  int Bind(const std::string& host, int port);
  // Serves, once it is bound and has its routes.
  void Begin();

 private:
  bool is_stopping() const { return svr_sock_ == INVALID_SOCKET; }
  bool IsCrowded() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until there is room for one more.
  void Enter() ABSL_LOCKS_EXCLUDED(mutex_);
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);

  void Run();
  int Accept();
  void TellOf(int error);
  void Converse(int fd);

  const TlsContext tls_;
  int listener_ = -1;
  int port_ = 0;
  // Of the accepting thread.
  ConnectionCaps caps_;
  absl::Duration told_ = -absl::InfiniteDuration();

  absl::Mutex mutex_;
  int connections_ ABSL_GUARDED_BY(mutex_) = 0;  // Those that are served or wait for a thread.
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_HTTP_ACCEPTOR_H_

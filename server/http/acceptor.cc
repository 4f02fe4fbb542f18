#include "server/http/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/http/connection.h"
#include "server/http/requests.h"
#include "server/job/log.h"
#include "server/node/clock.h"
#include "server/node/descriptors.h"

namespace snug::server {
namespace {

// Connections that are served at a time: those that are slow hold nobody up for long.
constexpr int kThreads = 64;
constexpr int kMostConnections = 128;  // With those that wait for a thread: each has a descriptor.
// Over TLS one address leaves some threads to the others.
constexpr ConnectionLimits kCaps = {.in_all = kMostConnections, .of_a_user = 48};
constexpr absl::Duration kAfterAnError = absl::Milliseconds(50);
constexpr absl::Duration kBetweenWarnings = absl::Minutes(1);

}  // namespace

Acceptor::Acceptor(TlsContext tls) : tls_(std::move(tls)), caps_(kCaps) {}

Acceptor::~Acceptor() {
  svr_sock_ = INVALID_SOCKET;  // By this httplib knows, too, that answers are to end.
  if (thread_.joinable()) {
    shutdown(listener_, SHUT_RDWR);  // Wakes the thread from accept.
    thread_.join();
  }
  if (listener_ >= 0) close(listener_);
}

int Acceptor::Bind(const std::string& host, int port) {
  port_ = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
  listener_ = svr_sock_;
  if (port_ > 0) ::listen(listener_, kMostConnections);  // httplib lets five wait.
  return port_;
}

void Acceptor::Begin() {
  thread_ = std::thread([this] { Run(); });
}

bool Acceptor::IsCrowded() {
  absl::MutexLock lock(&mutex_);
  return connections_ > kThreads || is_stopping();
}

void Acceptor::Enter() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* connections) { return *connections < kMostConnections; }, &connections_));
  ++connections_;
}

void Acceptor::Leave() {
  absl::MutexLock lock(&mutex_);
  --connections_;
}

void Acceptor::Run() {
  httplib::ThreadPool pool(kThreads);
  while (!is_stopping()) {
    const int fd = Accept();
    if (fd < 0) continue;
    Enter();
    pool.enqueue([this, fd] {
      Converse(fd);
      Leave();
    });
  }
  pool.shutdown();
}

// A connection, or -1.
int Acceptor::Accept() {
  const int fd = AcceptOrPause(listener_, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    if (!is_stopping()) TellOf(errno);
    return -1;
  }
  if (IsSpareDescriptor(fd) && (tls_ == nullptr || caps_.Admit(fd))) return fd;
  close(fd);
  return -1;
}

void Acceptor::TellOf(int error) {
  if (error == EINTR || error == ECONNABORTED) return;
  const absl::Duration now = SinceBoot();
  if (now - told_ >= kBetweenWarnings) {
    told_ = now;
    const absl::Status why = absl::ErrnoToStatus(
        error, absl::StrCat("port ", port_, " takes no connections for the moment"));
    spdlog::warn("{}", why.message());
  }
  absl::SleepFor(kAfterAnError);
}

void Acceptor::Converse(int fd) {
  Connection connection(fd, tls_.get(), [this] { return IsCrowded(); });
  if (!connection.ShakeHands()) return;
  for (size_t left = keep_alive_max_count_; left > 0; --left) {
    if (is_stopping() || !connection.AwaitRequest()) return;
    bool is_last = false, has_body = false;
    const auto after_head = [&](httplib::Request& request) {
      has_body = HasBody(request);
      connection.HeadHasCome(has_body);
      request.ssl = connection.ssl();
      if (!has_body) return;
      // What is left of a body that was refused would be the next request, perhaps another's.
      request.headers.erase("Connection");
      request.set_header("Connection", "close");  // The answer repeats it.
    };
    if (!process_request(connection, left == 1, is_last, after_head)) return;
    if (is_last || has_body) return;
  }
}

}  // namespace snug::server

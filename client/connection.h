// The way to the daemon: a gRPC channel over its unix socket or TLS, calls that survive its
// restart.
#ifndef CLIENT_CONNECTION_H_
#define CLIENT_CONNECTION_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/errors.h"
#include "client/server.h"
#include "grpcpp/grpcpp.h"
#include "snug/v1/service.grpc.pb.h"

namespace snug::client {

// unix:PATH of the socket that a daemon started by this user without options listens on; where
// there is none, and the Debian package's service listens, of the service's.
std::string DefaultServer();

inline constexpr char kServiceSocket[] = "unix:/run/snug/snug.sock";
using Exists = std::function<bool(const std::string& server)>;
// The same for a user whose $XDG_RUNTIME_DIR is `runtime`.
std::string DefaultServerOf(uid_t user, absl::string_view runtime, const Exists& exists);

// Waits between attempts to reach a daemon that has gone: 0.1 s at first, twice as long each time,
// at most 2 s.
class Backoff {
 public:
  explicit Backoff(absl::Duration limit) : limit_(limit) {}
  bool Wait();  // False, at once, when `limit` has passed since the first wait.
  void Reset() { *this = Backoff(limit_); }
  bool waited() const { return first_ != absl::InfinitePast(); }

 private:
  absl::Duration limit_;
  absl::Duration next_ = absl::Milliseconds(100);
  absl::Time first_ = absl::InfinitePast();
};

// Whether the daemon went away in the middle of a call. Its own answers carry details; what
// gRPC makes of a connection that ends, be it CANCELLED or INTERNAL, does not.
bool IsLost(const grpc::Status& status);

class Connection {
 public:
  // When nobody listens there the error says so, and how to start a daemon; over TLS also when one
  // of the two does not take the other's certificate.
  static absl::StatusOr<Connection> Open(const Server& server);

  v1::FineTuning::Stub& stub() { return *stub_; }

  // A unary call. Tried again while the daemon is away (30 s): every call of the API may be,
  // CreateJob by its request_id.
  template <class Request, class Reply>
  absl::StatusOr<Reply> Call(grpc::Status (v1::FineTuning::Stub::*method)(grpc::ClientContext*,
                                                                          const Request&, Reply*),
                             const Request& request, absl::Duration deadline = kCallDeadline) {
    Backoff backoff(kRetryFor);
    while (true) {
      grpc::ClientContext context;
      context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
      Reply reply;
      const grpc::Status status = (*stub_.*method)(&context, request, &reply);
      if (status.ok()) return reply;
      if (!IsLost(status) || !backoff.Wait()) return ToStatus(status);
    }
  }

 private:
  // Of a restart of the daemon, which takes a second or two, a disk that is slow included.
  static constexpr absl::Duration kRetryFor = absl::Seconds(30);
  // Planning reads a model's headers from disk; nothing else takes longer than milliseconds.
  static constexpr absl::Duration kCallDeadline = absl::Seconds(120);

  explicit Connection(std::unique_ptr<v1::FineTuning::Stub> stub) : stub_(std::move(stub)) {}

  std::unique_ptr<v1::FineTuning::Stub> stub_;
};

}  // namespace snug::client

#endif  // CLIENT_CONNECTION_H_

// Who makes a call, and whether he makes too many. On the unix socket the connection says it; over
// TLS the client's certificate, where the address asks for one, else a token with each call. Calls
// from within the process are the HTTP server's, for a browser with a session or a token.
#ifndef SERVER_API_CALLERS_H_
#define SERVER_API_CALLERS_H_

#include <grpcpp/server_context.h>

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/peers.h"
#include "server/api/sessions.h"
#include "server/job/tenants.h"
#include "server/job/tokens.h"

namespace snug::server {

// What each caller over TLS may do at once, and go on with.
struct CallRate {
  int burst = 200;
  int per_second = 50;
};

// Buckets that fill as time goes by, one for each name; there are as many names as tokens and
// certificates.
class RateLimit {
 public:
  explicit RateLimit(CallRate rate = {}) : rate_(rate) {}

  bool Take(const std::string& name, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);
  int per_second() const { return rate_.per_second; }

 private:
  struct Bucket {
    double calls = 0;
    absl::Duration filled;
  };

  const CallRate rate_;
  absl::Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
};

class Callers {
 public:
  // All outlive it.
  Callers(const Peers& peers, const Tokens& tokens, const Tenants& tenants,
          const Sessions& sessions)
      : peers_(peers), tokens_(tokens), tenants_(tenants), sessions_(sessions) {}

  // UNAUTHENTICATED: nobody knows him. RESOURCE_EXHAUSTED: he calls too often.
  absl::StatusOr<Principal> Find(const grpc::ServerContextBase& context);
  // By what a browser or a script showed: of a session, or a token.
  absl::StatusOr<Principal> FindBySecret(absl::string_view secret);

 private:
  absl::StatusOr<Principal> OverTls(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Principal> OfSecret(absl::string_view secret) const;
  absl::StatusOr<Principal> OfToken(absl::string_view secret) const;
  absl::StatusOr<Principal> WithinRate(absl::StatusOr<Principal> who);

  const Peers& peers_;
  const Tokens& tokens_;
  const Tenants& tenants_;
  const Sessions& sessions_;
  RateLimit rate_;
};

}  // namespace snug::server

#endif  // SERVER_API_CALLERS_H_

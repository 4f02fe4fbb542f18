// Who shows something that only he can have, and whether he calls too often: a browser its
// session's secret, a script a token, a client over TLS its certificate, a process its user.
#ifndef SERVER_API_CALLERS_H_
#define SERVER_API_CALLERS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/api/sessions.h"
#include "server/job/tenants.h"
#include "server/job/tokens.h"

namespace snug::server {

// What each caller may do at once, and go on with.
struct CallRate {
  int burst = 200;
  int per_second = 50;
};

// Buckets that fill as time goes by, one for each name. Full ones are forgotten.
class RateLimit {
 public:
  explicit RateLimit(CallRate rate = {}) : rate_(rate) {}

  bool Take(const std::string& name, absl::Duration now) ABSL_LOCKS_EXCLUDED(mutex_);
  int per_second() const { return rate_.per_second; }
  // Of how many names anything is kept.
  size_t size() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Bucket {
    double calls = 0;
    absl::Duration filled;
  };

  double LevelOf(const Bucket& bucket, absl::Duration now) const;

  const CallRate rate_;
  mutable absl::Mutex mutex_;
  std::map<std::string, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  // Looking at all of them is paid for by the ones that came since.
  size_t forget_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

class Callers {
 public:
  // All outlive it.
  Callers(const Tokens& tokens, const Tenants& tenants, const Sessions& sessions)
      : tokens_(tokens), tenants_(tenants), sessions_(sessions) {}

  // UNAUTHENTICATED: nobody knows him. RESOURCE_EXHAUSTED: he calls too often.
  absl::StatusOr<Principal> OfSecret(absl::string_view secret);  // Of a session, or a token.
  absl::StatusOr<Principal> OfToken(absl::string_view token);
  // Whether OfSecret would know him; it counts as no call.
  absl::Status CheckSecret(absl::string_view secret) const;
  absl::StatusOr<Principal> OfCertificate(const CertificateNames& names);
  // Of the unix socket, whom the kernel knows. The daemon's own user, and root, may call as often
  // as they like where there are no tenants, else ten times as often as others.
  absl::StatusOr<Principal> OfUser(Principal user);

  // Of one who was let in, for what goes on after his call: UNAUTHENTICATED, his token has expired
  // or was revoked.
  absl::Status StillLetIn(const Principal& who) const;

 private:
  absl::StatusOr<Principal> FindSecret(absl::string_view secret) const;
  absl::StatusOr<Principal> FindToken(absl::string_view token) const;
  absl::StatusOr<Principal> WithinRate(absl::StatusOr<Principal> who);

  const Tokens& tokens_;
  const Tenants& tenants_;
  const Sessions& sessions_;
  RateLimit rate_,
      own_rate_{{.burst = 10 * CallRate().burst, .per_second = 10 * CallRate().per_second}};
};

}  // namespace snug::server

#endif  // SERVER_API_CALLERS_H_

// What lets a browser in: `snug open` asks for a session and prints a link with its secret.
//
// A session reads what its caller may see, and changes nothing. All are in memory alone: a daemon
// that starts again knows none of them.
#ifndef SERVER_API_SESSIONS_H_
#define SERVER_API_SESSIONS_H_

#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/job/principal.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

inline constexpr absl::string_view kSessionPrefix = "snugs_";  // Of its secret.
inline constexpr absl::Duration kSessionLasts = absl::Hours(12);
inline constexpr size_t kMaxSessions = 1000;  // The one that ends first goes for one more.

class Sessions {
 public:
  v1::CreateSessionResponse Create(Principal who, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);
  // Nothing: there is none, or it has ended.
  std::optional<Principal> Find(absl::string_view secret, absl::Time now) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Session {
    Principal who;
    absl::Time expires;
  };

  mutable absl::Mutex mutex_;
  // By the SHA-256 of the secret: how long a look-up takes says nothing of a secret.
  std::map<std::string, Session> sessions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_API_SESSIONS_H_

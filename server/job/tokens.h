// The tokens that let clients in over TLS: given out, looked at with every call, revoked.
//
// A token is 256 random bits behind its id, which is no secret: snug_ID_BITS. The store has its
// SHA-256, and nothing else knows it but its owner. All are in memory; what changes one is
// committed first.
#ifndef SERVER_JOB_TOKENS_H_
#define SERVER_JOB_TOKENS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "server/job/job_store.h"
#include "server/job/records.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

class Tokens {
 public:
  // Those of the store, which outlives them.
  static absl::StatusOr<std::unique_ptr<Tokens>> Load(JobStore& store);

  absl::StatusOr<v1::CreateTokenResponse> Create(const v1::CreateTokenRequest& request,
                                                 int64_t now_us) ABSL_LOCKS_EXCLUDED(mutex_);
  // Oldest first; those of one moment by their ids.
  std::vector<v1::Token> List() const ABSL_LOCKS_EXCLUDED(mutex_);
  // By its id or its name.
  absl::StatusOr<v1::Token> Revoke(const std::string& id, int64_t now_us)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Of what a client sent. UNAUTHENTICATED in one set of words for whatever is no token of ours;
  // whoever has one is told that it has expired or was revoked.
  absl::StatusOr<TokenRecord> Check(absl::string_view secret, int64_t now_us) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of one that was let in. UNAUTHENTICATED: it has expired or was revoked since.
  absl::Status CheckStanding(absl::string_view id, int64_t now_us) const
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  explicit Tokens(JobStore& store) : store_(store) {}

  JobStore& store_;
  mutable absl::Mutex mutex_;
  std::map<std::string, TokenRecord, std::less<>> tokens_ ABSL_GUARDED_BY(mutex_);  // By id.
};

}  // namespace snug::server

#endif  // SERVER_JOB_TOKENS_H_

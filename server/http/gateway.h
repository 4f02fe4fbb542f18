// The API for who came over HTTP: finds out who shows a secret, calls in his name, and waits for
// the answer.
#ifndef SERVER_HTTP_GATEWAY_H_
#define SERVER_HTTP_GATEWAY_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"
#include "server/api/api.h"
#include "server/api/callers.h"

namespace snug::server {

class Gateway {
 public:
  // Until then every call is UNAVAILABLE. Both outlive the servers that call.
  void Connect(Api& api, Callers& callers) ABSL_LOCKS_EXCLUDED(mutex_);

  // `secret`: of a session or a token. UNAUTHENTICATED also for what cannot be one.
  // DEADLINE_EXCEEDED: there was no answer in 10 s; what the call changes may still happen.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(void (Api::*method)(const Principal&, const Request&,
                                                    Answer<Response>),
                                const std::string& secret, const Request& request) const {
    ASSIGN_OR_RETURN(const Entry entry, Enter(secret));
    RETURN_IF_ERROR(CheckSize(request.ByteSizeLong()));
    struct Reply {
      absl::StatusOr<Response> response;
      absl::Notification given;
    };
    const auto reply = std::make_shared<Reply>();
    (entry.api.*method)(entry.who, request, [reply](absl::StatusOr<Response> response) {
      reply->response = std::move(response);
      reply->given.Notify();
    });
    if (!reply->given.WaitForNotificationWithTimeout(kPatience)) return NoAnswer();
    return std::move(reply->response);
  }

  // Whether the secret lets anybody in, before more of a request is read than its head. It counts
  // as no call.
  absl::Status Check(const std::string& secret) const;

  // An upload, begun by its name.
  absl::StatusOr<std::unique_ptr<FileUpload>> Upload(const std::string& secret,
                                                     const std::string& filename) const;

  // All lines of a job's metrics.jsonl.
  absl::StatusOr<std::string> MetricsOf(const std::string& secret, const std::string& job) const;

 private:
  static constexpr absl::Duration kPatience = absl::Seconds(10);

  struct Entry {
    Api& api;
    Principal who;
  };
  struct Parts {
    Api& api;
    Callers& callers;
  };
  // For who shows what may be a secret.
  absl::StatusOr<Parts> PartsFor(const std::string& secret) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Entry> Enter(const std::string& secret) const ABSL_LOCKS_EXCLUDED(mutex_);
  static absl::Status CheckSize(size_t request_bytes);
  static absl::Status NoAnswer();

  mutable absl::Mutex mutex_;
  Api* api_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Callers* callers_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace snug::server

#endif  // SERVER_HTTP_GATEWAY_H_

// The thread that calls the webhooks of ended jobs until they have heard: each call that waits is a
// row of the store, written with the job's end, so that no restart forgets one. A webhook may hear
// twice: the daemon may end between the call and the commit that it was made.
#ifndef SERVER_WEBHOOK_SENDER_H_
#define SERVER_WEBHOOK_SENDER_H_

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "server/job/job_index.h"
#include "server/job/job_store.h"
#include "server/job/webhook_url.h"
#include "server/metrics/metrics.h"
#include "server/webhook/call.h"
#include "snug/v1/config.pb.h"

namespace snug::server {

// After so many failed tries, when the next one is due; nothing: there is none.
std::optional<absl::Duration> RetryAfter(int64_t tries);

struct WebhookSettings {
  std::string key;  // Empty: nobody is called.
  std::vector<std::string> hosts;
};

// Reads the secret. INVALID_ARGUMENT with the setting that is not what it has to be.
absl::StatusOr<WebhookSettings> WebhookSettingsOf(const v1::WebhookConfig& config);

// The status code that the host answered with.
using PostCall =
    std::function<absl::StatusOr<int>(const WebhookUrl& url, const WebhookCall& call)>;

// All outlive the sender.
struct WebhookParts {
  WebhookSettings settings;
  PostCall post;
  JobStore& store;
  JobIndex& index;
  Metrics& metrics;
};

class WebhookSender {
 public:
  // Does nothing without a key; calls that wait are made by a later daemon that has one.
  explicit WebhookSender(WebhookParts parts);
  ~WebhookSender();  // After the call under way.

 private:
  void Loop();
  void SendDue();
  void Send(WebhookRecord record, std::set<std::string>& silent);
  void Store(const WebhookRecord& record);

  const WebhookParts parts_;
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace snug::server

#endif  // SERVER_WEBHOOK_SENDER_H_

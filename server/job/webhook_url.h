// Where a job's webhook leads, and whether the daemon may call there. Pure.
#ifndef SERVER_JOB_WEBHOOK_URL_H_
#define SERVER_JOB_WEBHOOK_URL_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/job/errors.h"

namespace snug::server {

inline constexpr size_t kMaxWebhookBytes = 2048;

struct WebhookUrl {
  std::string host;  // Lower case; a name or an IPv4 address.
  int port = 443;
  std::string path;  // With the query.
};

// https://HOST[:PORT][/PATH][?QUERY], and nothing else: no user, no fragment.
absl::StatusOr<WebhookUrl> ParseWebhookUrl(absl::string_view text);

// `allowed`: "hooks.example.org", "*.example.org" for names below it, either with :PORT; without it
// the port is 443.
bool IsAllowed(const WebhookUrl& url, const std::vector<std::string>& allowed);

// Of a job's spec.
std::vector<Violation> CheckWebhook(const std::string& webhook,
                                    const std::vector<std::string>& allowed);

}  // namespace snug::server

#endif  // SERVER_JOB_WEBHOOK_URL_H_

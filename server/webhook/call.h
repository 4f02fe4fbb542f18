// What a webhook is told of an ended job, signed so that the receiver knows who says it
// (https://www.standardwebhooks.com, symmetric signatures). Pure.
#ifndef SERVER_WEBHOOK_CALL_H_
#define SERVER_WEBHOOK_CALL_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct WebhookCall {
  std::map<std::string, std::string> headers;
  std::string body;  // JSON.
};

// "whsec_" and 24 to 64 bytes in base64. INVALID_ARGUMENT says what is wrong, and not what it is.
absl::StatusOr<std::string> ParseWebhookSecret(absl::string_view text);

// `key`: as parsed. The same job has the same id in every try, so that a receiver can tell.
WebhookCall CallOf(const v1::Job& job, const std::string& key, absl::Time now);

}  // namespace snug::server

#endif  // SERVER_WEBHOOK_CALL_H_

#include "server/webhook/sender.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/job/log.h"
#include "server/job/store_rows.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/clock.h"

namespace snug::server {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
constexpr int64_t kMostSecretBytes = 1024;
constexpr int kGone = 410;  // The receiver wants no more.
// The waits of Standard Webhooks: some 18 hours in all.
constexpr std::array kWaits = {absl::Seconds(5), absl::Seconds(30), absl::Minutes(5),
                               absl::Minutes(30), absl::Hours(2), absl::Hours(5),
                               absl::Hours(10)};
constexpr absl::Duration kLongestWait = kWaits.back();
// To a host that has just not answered, other calls wait so long.
constexpr absl::Duration kAfterSilence = absl::Seconds(30);

bool IsHeard(const absl::StatusOr<int>& code) { return code.ok() && *code >= 200 && *code < 300; }

}  // namespace

std::optional<absl::Duration> RetryAfter(int64_t tries) {
  if (tries < 1 || tries > static_cast<int64_t>(kWaits.size())) return std::nullopt;
  return kWaits[static_cast<size_t>(tries - 1)];
}

absl::StatusOr<WebhookSettings> WebhookSettingsOf(const v1::WebhookConfig& config) {
  WebhookSettings settings{.hosts = {config.hosts().begin(), config.hosts().end()}};
  if (settings.hosts.empty() && config.secret_file().empty()) return settings;
  const auto wrong = [](const char* field, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("webhooks.", field, ": ", what));
  };
  if (settings.hosts.empty()) return wrong("hosts", "is missing: nobody may be called without it");
  if (config.secret_file().empty())
    return wrong("secret_file", "is missing: calls are signed with the secret in it");
  const absl::StatusOr<std::string> text = ReadSmallFile(config.secret_file(), kMostSecretBytes);
  if (!text.ok()) return wrong("secret_file", text.status().message());
  absl::StatusOr<std::string> key = ParseWebhookSecret(*text);
  if (!key.ok())
    return wrong("secret_file", absl::StrCat(config.secret_file(), " ", key.status().message()));
  settings.key = *std::move(key);
  return settings;
}

WebhookSender::WebhookSender(WebhookParts parts) : parts_(std::move(parts)) {
  if (!parts_.settings.key.empty()) thread_ = std::thread([this] { Loop(); });
}

WebhookSender::~WebhookSender() {
  stop_.Notify();
  if (thread_.joinable()) thread_.join();
}

void WebhookSender::Loop() {
  while (!stop_.WaitForNotificationWithTimeout(kBetweenLooks)) SendDue();
}

void WebhookSender::SendDue() {
  const auto due = parts_.store.Ask<std::vector<WebhookRecord>>(
      [](Database& database) { return DueWebhooks(database, WallMicros(), kLongestWait); });
  if (!due.ok()) return spdlog::error("webhooks are not called: {}", due.status().message());
  std::set<std::string> silent;
  for (const WebhookRecord& record : *due) {
    if (stop_.HasBeenNotified()) return;
    Send(record, silent);
  }
}

void WebhookSender::Send(WebhookRecord record, std::set<std::string>& silent) {
  const absl::StatusOr<JobPtr> job = parts_.index.Find(record.job);
  if (absl::IsNotFound(job.status())) return;  // Deleted meanwhile, and the row with it.
  const absl::Status readable = job.status();
  if (!readable.ok()) return spdlog::error("job {}: {}", record.job, readable.message());
  const absl::StatusOr<WebhookUrl> url = ParseWebhookUrl((*job)->spec().webhook());
  record.done = true;
  if (!url.ok() || !IsAllowed(*url, parts_.settings.hosts)) {
    spdlog::warn("job {}: {} is not called: webhooks.hosts does not have it any more", record.job,
                 (*job)->spec().webhook());
    parts_.metrics.WebhookCalled("given_up");
    return Store(record);
  }
  const std::string host = absl::StrCat(url->host, ":", url->port);
  if (silent.count(host) > 0) {
    record.done = false;
    record.due_us = WallMicros() + absl::ToInt64Microseconds(kAfterSilence);
    return Store(record);
  }
  FAILPOINT("webhook.call");
  const absl::StatusOr<int> code =
      parts_.post(*url, CallOf(**job, parts_.settings.key, absl::Now()));
  FAILPOINT("webhook.called");
  if (IsHeard(code)) {
    parts_.metrics.WebhookCalled("heard");
    return Store(record);
  }
  if (!code.ok()) silent.insert(host);
  const std::string why =
      code.ok() ? absl::StrCat("it answered ", *code) : std::string(code.status().message());
  const std::optional<absl::Duration> wait = RetryAfter(++record.tries);
  record.done = !wait || (code.ok() && *code == kGone);
  parts_.metrics.WebhookCalled(record.done ? "given_up" : "failed");
  spdlog::warn("job {}: webhook {} has not heard: {}; {}", record.job, host, why,
               record.done ? "it is not called again" : absl::StrCat("again in ",
                                                                    absl::FormatDuration(*wait)));
  if (!record.done) record.due_us = WallMicros() + absl::ToInt64Microseconds(*wait);
  Store(record);
}

void WebhookSender::Store(const WebhookRecord& record) {
  const absl::Status stored = parts_.store.Commit({.webhook = record});
  if (!stored.ok()) spdlog::error("job {}: its webhook's call is not stored: {}", record.job,
                                  stored.message());
}

}  // namespace snug::server

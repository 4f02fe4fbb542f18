#include "server/job/webhook_url.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int kHttpsPort = 443;
constexpr int kMostPort = 65535;

struct Place {
  absl::string_view host;
  int port = kHttpsPort;
};

bool IsHostLetter(unsigned char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-'; }
bool IsPathLetter(unsigned char c) { return absl::ascii_isgraph(c) && c != '#' && c != '\\'; }

absl::StatusOr<Place> ParsePlace(absl::string_view text) {
  if (absl::StrContains(text, '@'))  // Not shown: it may be a secret.
    return absl::InvalidArgumentError("the host has a user or a password before it");
  Place place{.host = text.substr(0, text.find(':'))};
  if (place.host.empty() || !absl::c_all_of(place.host, IsHostLetter))
    return absl::InvalidArgumentError(absl::StrCat("\"", place.host, "\" is no name of a host"));
  if (place.host.size() == text.size()) return place;
  const absl::string_view port = text.substr(place.host.size() + 1);
  if (!absl::SimpleAtoi(port, &place.port) || place.port < 1 || place.port > kMostPort)
    return absl::InvalidArgumentError(absl::StrCat("\"", port, "\" is no port"));
  return place;
}

bool Matches(const WebhookUrl& url, absl::string_view pattern) {
  const bool below = absl::ConsumePrefix(&pattern, "*");  // The rest begins with a dot.
  const absl::StatusOr<Place> place = ParsePlace(pattern);
  if (!place.ok() || place->port != url.port) return false;
  const std::string host = absl::AsciiStrToLower(place->host);
  return below ? absl::StartsWith(host, ".") && absl::EndsWith(url.host, host) : url.host == host;
}

}  // namespace

absl::StatusOr<WebhookUrl> ParseWebhookUrl(absl::string_view text) {
  if (text.size() > kMaxWebhookBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; at most ", kMaxWebhookBytes));
  if (!absl::ConsumePrefix(&text, "https://"))
    return absl::InvalidArgumentError("must be https://HOST[:PORT]/PATH");
  const size_t end = text.find_first_of("/?#");
  ASSIGN_OR_RETURN(const Place place, ParsePlace(text.substr(0, end)));
  const absl::string_view path = end == absl::string_view::npos ? "" : text.substr(end);
  if (!absl::c_all_of(path, IsPathLetter))
    return absl::InvalidArgumentError("the path has a letter that no path has: escape it");
  return WebhookUrl{
      .host = absl::AsciiStrToLower(place.host),
      .port = place.port,
      .path = absl::StartsWith(path, "/") ? std::string(path) : absl::StrCat("/", path)};
}

bool IsAllowed(const WebhookUrl& url, const std::vector<std::string>& allowed) {
  return absl::c_any_of(allowed, [&](const std::string& pattern) { return Matches(url, pattern); });
}

std::vector<Violation> CheckWebhook(const std::string& webhook,
                                    const std::vector<std::string>& allowed) {
  if (webhook.empty()) return {};
  const absl::StatusOr<WebhookUrl> url = ParseWebhookUrl(webhook);
  if (!url.ok()) return {{"spec.webhook", std::string(url.status().message()), "BAD_FIELD"}};
  if (IsAllowed(*url, allowed)) return {};
  const std::string hosts = absl::StrJoin(allowed, ", ");
  return {{"spec.webhook",
           absl::StrCat("this daemon does not call ", url->host, ":", url->port, "; it calls ",
                        hosts.empty() ? "nobody: its configuration has no webhooks.hosts" : hosts),
           "BAD_FIELD"}};
}

}  // namespace snug::server

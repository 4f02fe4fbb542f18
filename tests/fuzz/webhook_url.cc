// A job's webhook, and the hosts of the configuration that may be called: two lines.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/job/webhook_url.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  const size_t end = std::min(text.find('\n'), text.size());
  const absl::string_view rest = end == text.size() ? absl::string_view() : text.substr(end + 1);
  const auto url = ParseWebhookUrl(text.substr(0, end));
  if (!url.ok()) return 0;
  if (url->host.empty() || url->port < 1 || url->port > 65535 || url->path.substr(0, 1) != "/")
    abort();
  // Itself is allowed by its own name; nothing is where no host is named.
  if (!IsAllowed(*url, {absl::StrCat(url->host, ":", url->port)}) || IsAllowed(*url, {})) abort();
  // Written again it is the same.
  const auto again =
      ParseWebhookUrl(absl::StrCat("https://", url->host, ":", url->port, url->path));
  if (text.size() < kMaxWebhookBytes / 2 && (!again.ok() || again->path != url->path)) abort();
  IsAllowed(*url, {std::string(rest)});
  return 0;
}

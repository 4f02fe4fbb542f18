#include "server/webhook/call.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "google/protobuf/util/time_util.h"
#include "proto/snug/enum_words.h"
#include "server/job/job_key.h"

namespace snug::server {
namespace {

using nlohmann::json;

constexpr size_t kLeastKeyBytes = 24, kMostKeyBytes = 64;

json DataOf(const v1::Job& job) {
  json data = {{"id", job.id()},
               {"name", job.name()},
               {"display_name", job.display_name()},
               {"state", EnumWord(job.state())},
               {"reason", job.reason()},
               {"global_step", job.progress().global_step()},
               {"loss", job.progress().loss()},
               {"labels", json::object()}};
  for (const auto& [key, value] : job.labels()) data["labels"][key] = value;
  if (job.progress().has_eval_loss()) data["eval_loss"] = job.progress().eval_loss();
  if (!job.error().reason().empty())
    data["error"] = {{"reason", job.error().reason()},
                     {"message", job.error().message()},
                     {"field", job.error().field()}};
  return data;
}

std::string HmacSha256(const std::string& key, const std::string& text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

}  // namespace

absl::StatusOr<std::string> ParseWebhookSecret(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  std::string key;
  if (!absl::ConsumePrefix(&text, "whsec_") || !absl::Base64Unescape(text, &key))
    return absl::InvalidArgumentError("must be whsec_ and a key in base64");
  if (key.size() < kLeastKeyBytes || key.size() > kMostKeyBytes)
    return absl::InvalidArgumentError(absl::StrCat("the key has ", key.size(), " bytes; it needs ",
                                                   kLeastKeyBytes, " to ", kMostKeyBytes));
  return key;
}

WebhookCall CallOf(const v1::Job& job, const std::string& key, absl::Time now) {
  using google::protobuf::util::TimeUtil;
  const json body = {{"type", absl::StrCat("job.", LowerEnumWord(job.state()))},
                     {"timestamp", TimeUtil::ToString(job.end_time())},
                     {"data", DataOf(job)}};
  WebhookCall call{.body = body.dump(-1, ' ', false, json::error_handler_t::replace)};
  // An id is given again once its job is deleted.
  const std::string id = absl::StrCat("msg_", KeyOf(job), "_",
                                      TimeUtil::TimestampToMilliseconds(job.create_time()));
  const std::string seconds = absl::StrCat(absl::ToUnixSeconds(now));
  const std::string signature = HmacSha256(key, absl::StrCat(id, ".", seconds, ".", call.body));
  call.headers = {{"webhook-id", id},
                  {"webhook-timestamp", seconds},
                  {"webhook-signature", absl::StrCat("v1,", absl::Base64Escape(signature))}};
  return call;
}

}  // namespace snug::server

// Of what webhooks are told; that receivers' own libraries take it is in server/webhook_test.
#include "server/webhook/call.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/job/webhook_url.h"
#include "server/webhook/sender.h"

namespace snug::server {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

v1::Job Ended() {
  v1::Job job;
  job.set_id("j-1");
  job.set_state(v1::Job::STATE_FAILED);
  job.mutable_create_time()->set_seconds(1614265000);
  job.mutable_error()->set_reason("NON_FINITE");
  job.mutable_progress()->set_global_step(7);
  (*job.mutable_labels())["team"] = "blue";
  return job;
}

TEST(WebhookCallTest, SecretsAreThoseOfTheSpecification) {
  EXPECT_EQ(ParseWebhookSecret(kSecret).value().size(), 24u);
  EXPECT_EQ(ParseWebhookSecret(std::string(kSecret) + "\n").value().size(), 24u);
  for (const char* wrong :
       {"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_not base64!"})
    EXPECT_TRUE(absl::IsInvalidArgument(ParseWebhookSecret(wrong).status())) << wrong;
}

TEST(WebhookCallTest, AJobsEndIsToldInJson) {
  const WebhookCall call = CallOf(Ended(), "key", absl::FromUnixSeconds(1614265330));
  const auto body = nlohmann::json::parse(call.body);
  EXPECT_EQ(body["type"], "job.failed");
  EXPECT_EQ(body["data"]["id"], "j-1");
  EXPECT_EQ(body["data"]["error"]["reason"], "NON_FINITE");
  EXPECT_EQ(body["data"]["global_step"], 7);
  EXPECT_EQ(body["data"]["labels"]["team"], "blue");
  EXPECT_EQ(call.headers.at("webhook-id"), "msg_j-1_1614265000000");
  EXPECT_EQ(call.headers.at("webhook-timestamp"), "1614265330");
}

TEST(WebhookCallTest, EachTryIsSignedAnewUnderTheSameId) {
  const WebhookCall first = CallOf(Ended(), "key", absl::FromUnixSeconds(1));
  const WebhookCall second = CallOf(Ended(), "key", absl::FromUnixSeconds(2));
  EXPECT_EQ(first.headers.at("webhook-id"), second.headers.at("webhook-id"));
  EXPECT_NE(first.headers.at("webhook-signature"), second.headers.at("webhook-signature"));
  EXPECT_NE(CallOf(Ended(), "other", absl::FromUnixSeconds(1)).headers, first.headers);
}

TEST(WebhookCallTest, TriesComeToAnEndWithinADay) {
  absl::Duration all;
  int64_t tries = 1;
  for (; RetryAfter(tries); ++tries) {
    EXPECT_TRUE(tries == 1 || *RetryAfter(tries) > *RetryAfter(tries - 1));
    all += *RetryAfter(tries);
  }
  EXPECT_EQ(tries, 8);
  EXPECT_GT(all, absl::Hours(17));
  EXPECT_LT(all, absl::Hours(24));
}

TEST(WebhookUrlTest, PartsOfAUrl) {
  const WebhookUrl url = ParseWebhookUrl("https://Hooks.Example.org:8443/a/b?c=d").value();
  EXPECT_EQ(url.host, "hooks.example.org");
  EXPECT_EQ(url.port, 8443);
  EXPECT_EQ(url.path, "/a/b?c=d");
  EXPECT_EQ(ParseWebhookUrl("https://a.b").value().path, "/");
  EXPECT_EQ(ParseWebhookUrl("https://a.b?c").value().path, "/?c");
  EXPECT_EQ(ParseWebhookUrl("https://a.b").value().port, 443);
}

// Nothing that one reader takes for another host than the next one.
TEST(WebhookUrlTest, WhatIsNoPlainHttpsUrlIsRefused) {
  for (const char* wrong :
       {"", "http://a.b/", "ftp://a.b", "https://", "https:///x", "https://a b/", "https://u@a.b/",
        "https://u:p@a.b/", "https://a.b:0/", "https://a.b:70000/", "https://a.b:x/",
        "https://[::1]/", "https://a.b/#c", "https://a.b\\@c/", "https://a.b/\r\nx: y",
        "https://a.b/\x80", "https://a_b/"})
    EXPECT_FALSE(ParseWebhookUrl(wrong).ok()) << wrong;
  EXPECT_FALSE(ParseWebhookUrl("https://a.b/" + std::string(kMaxWebhookBytes, 'x')).ok());
}

TEST(WebhookUrlTest, HostsAreAllowedByNameAndPort) {
  const auto allowed = [](const char* url, std::vector<std::string> hosts) {
    return IsAllowed(ParseWebhookUrl(url).value(), hosts);
  };
  EXPECT_TRUE(allowed("https://a.b/x", {"c.d", "A.b"}));
  EXPECT_TRUE(allowed("https://a.b:8443/x", {"a.b:8443"}));
  EXPECT_FALSE(allowed("https://a.b:8443/x", {"a.b"}));
  EXPECT_FALSE(allowed("https://a.b/x", {"a.b:8443"}));
  EXPECT_TRUE(allowed("https://x.a.b", {"*.a.b"}));
  EXPECT_FALSE(allowed("https://a.b", {"*.a.b"}));
  EXPECT_FALSE(allowed("https://xa.b", {"*.a.b"}));
  EXPECT_FALSE(allowed("https://xa.b", {"*a.b"}));
  EXPECT_FALSE(allowed("https://a.b", {}));
}

TEST(WebhookUrlTest, AJobIsToldWhomTheDaemonCalls) {
  EXPECT_TRUE(CheckWebhook("", {}).empty());
  EXPECT_TRUE(CheckWebhook("https://a.b/", {"a.b"}).empty());
  const std::vector<Violation> other = CheckWebhook("https://c.d/", {"a.b"});
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].field, "spec.webhook");
  EXPECT_THAT(other[0].message, HasSubstr("it calls a.b"));
  EXPECT_THAT(CheckWebhook("https://c.d/", {})[0].message, HasSubstr("no webhooks.hosts"));
}

}  // namespace
}  // namespace snug::server

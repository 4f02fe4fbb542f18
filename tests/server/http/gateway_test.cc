// How callers over HTTP come to the API: by a secret, within its limits.
#include "server/http/gateway.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/api/api_fixture.h"

namespace snug::server {
namespace {

using testing::HasSubstr;

class GatewayTest : public ApiTest {
 protected:
  std::string Session(const Principal& who) {
    return Call(&Api::CreateSession, who, v1::CreateSessionRequest()).value().secret();
  }
  absl::Status Ask(const std::string& secret) {
    return gateway_.Call(&Api::GetServerInfo, secret, v1::GetServerInfoRequest()).status();
  }

  Gateway gateway_;
};

TEST_F(GatewayTest, IsClosedUntilTheApiIsThere) {
  EXPECT_TRUE(absl::IsUnavailable(Ask("any-secret")));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask("")));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask("no\r\nsecret")));
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(std::string(201, 'a'))));
}

TEST_F(GatewayTest, ASessionReadsAndChangesNothing) {
  Callers callers(*tokens_, tenants_, sessions_);
  gateway_.Connect(*api_, callers);
  const std::string secret = Session(root_);
  EXPECT_TRUE(Ask(secret).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Ask(secret + "x")));
  const absl::Status refused = gateway_.Call(&Api::CreateJob, secret, Request("steps=1")).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused)) << refused;
  v1::UploadHeader header;
  EXPECT_TRUE(absl::IsPermissionDenied(gateway_.Upload(secret, "a.jsonl").status()));
}

// Who is let in before his request is read has his calls still.
TEST_F(GatewayTest, ACheckCountsAsNoCall) {
  Callers callers(*tokens_, tenants_, sessions_);
  gateway_.Connect(*api_, callers);
  const std::string secret = Session(tenant_);
  for (int i = 0; i < 2 * CallRate().burst; ++i) ASSERT_TRUE(gateway_.Check(secret).ok());
  EXPECT_TRUE(Ask(secret).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(gateway_.Check(secret + "x")));
}

TEST_F(GatewayTest, TheSizeOfARequestIsThatOfEveryDoor) {
  Callers callers(*tokens_, tenants_, sessions_);
  gateway_.Connect(*api_, callers);
  const absl::Status refused =
      gateway_.Call(&Api::CreateJob, Session(root_), Request(std::string(300 << 10, 'x'))).status();
  EXPECT_THAT(refused.message(), HasSubstr("at most 262144"));
}

TEST_F(GatewayTest, MetricsOfAJobAsOneText) {
  Callers callers(*tokens_, tenants_, sessions_);
  gateway_.Connect(*api_, callers);
  const std::string id = Call(&Api::CreateJob, root_, Request("steps=3")).value().id();
  Await([](const v1::Job& job) { return IsTerminal(job.state()); }, id);
  const std::string text = gateway_.MetricsOf(Session(root_), id).value();
  EXPECT_THAT(text, HasSubstr("\"global_step\":3"));
  EXPECT_TRUE(absl::IsNotFound(gateway_.MetricsOf(Session(tenant_), id).status()));
}

}  // namespace
}  // namespace snug::server

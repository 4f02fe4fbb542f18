#include "server/scheduler/tenant_use.h"

#include <gtest/gtest.h>

#include <string>

#include "server/job/errors.h"

namespace snug::server {
namespace {

CreateOrder By(const std::string& owner) {
  CreateOrder order;
  order.owner = owner;
  return order;
}

// One user of the socket cannot take all places, and takes none of another's.
TEST(TenantUseTest, UsersOfTheSocketHaveTheirTenantsQuotaEach) {
  v1::DaemonConfig config;
  config.add_tenants()->set_name("default");
  config.mutable_tenants(0)->mutable_quota()->set_live_jobs(2);
  const Tenants tenants = Tenants::FromConfig(config).value();
  TenantUse use(tenants);
  use.Enter("uid:1");
  EXPECT_TRUE(use.MayCreate(By("uid:1")).ok());
  use.Enter("uid:1");
  EXPECT_EQ(ReasonOf(use.MayCreate(By("uid:1"))), "QUOTA_EXCEEDED");
  EXPECT_TRUE(use.MayCreate(By("uid:2")).ok());
  EXPECT_TRUE(use.MayCreate(By("tenant:blue")).ok());
  use.Leave("uid:1");
  EXPECT_TRUE(use.MayCreate(By("uid:1")).ok());
}

// It is let in over the socket, and by no token.
TEST(TenantUseTest, TheSocketsTenantIsNoneOfThoseThatAreLetInOverTls) {
  v1::DaemonConfig config;
  config.add_tenants()->set_name("default");
  const Tenants tenants = Tenants::FromConfig(config).value();
  EXPECT_FALSE(tenants.Has("default"));
  EXPECT_TRUE(tenants.empty());
}

}  // namespace
}  // namespace snug::server

// What a request's id may be, beside an id.
#include "server/api/take_name.h"

#include <gtest/gtest.h>

#include "snug/v1/artifact.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {
namespace {

TEST(TakeNameTest, ACheckpointIsNamedAsAJobFileNamesIt) {
  v1::ListArtifactsRequest request;
  for (const char* id :
       {"job-1a2b3c/checkpoints/20", "tenants/blue/jobs/job-1a2b3c/checkpoints/20"}) {
    request.Clear();
    request.set_id(id);
    ASSERT_TRUE(TakeName("blue", request).ok()) << id;
    EXPECT_EQ(request.checkpoint_step(), 20) << id;
    EXPECT_EQ(request.id().find("/checkpoints"), std::string::npos) << id;
    request.set_id(id);
    request.set_checkpoint_step(10);
    EXPECT_TRUE(absl::IsInvalidArgument(TakeName("blue", request))) << id;
  }
}

// It is about a job, and would not say of which checkpoint it is.
TEST(TakeNameTest, AMethodThatKnowsNoCheckpointsLeavesTheIdAsItIs) {
  v1::GetJobRequest request;
  request.set_id("job-1a2b3c/checkpoints/20");
  ASSERT_TRUE(TakeName("blue", request).ok());
  EXPECT_EQ(request.id(), "job-1a2b3c/checkpoints/20");
}

}  // namespace
}  // namespace snug::server

#include "server/job/names.h"

#include <gtest/gtest.h>

namespace snug::server {
namespace {

TEST(NamesTest, WhatIsNamedIsRead) {
  using Name = ResourceName;
  const std::pair<const char*, Name> good[] = {
      {"tenants/t/jobs/a-1", {.kind = Name::kJob, .tenant = "t", .id = "a-1"}},
      {"tenants/t/jobs/a/checkpoints/20",
       {.kind = Name::kJob, .tenant = "t", .id = "a", .checkpoint_step = 20}},
      {"tenants/t/jobs/a/artifacts/merged/model.safetensors",
       {.kind = Name::kJob, .tenant = "t", .id = "a", .artifact = "merged/model.safetensors"}},
      {"tenants/t/jobs/a/checkpoints/0/artifacts/b",
       {.kind = Name::kJob, .tenant = "t", .id = "a", .checkpoint_step = 0, .artifact = "b"}},
      {"tenants/default/datasets/file-12",
       {.kind = Name::kDataset, .tenant = "default", .id = "file-12"}},
      {"tenants/t/tokens/9f", {.kind = Name::kToken, .tenant = "t", .id = "9f"}},
  };
  for (const auto& [text, name] : good) {
    ASSERT_TRUE(ParseName(text).has_value()) << text;
    EXPECT_EQ(*ParseName(text), name) << text;
  }
}

TEST(NamesTest, WhatIsNoNameIsNotRead) {
  for (const char* bad : {"",
                          "a",
                          "/",
                          "tenants",
                          "tenants/t",
                          "tenants/t/",
                          "tenants/t/jobs",
                          "tenants/t/jobs/",
                          "tenants//jobs/a",
                          "tenants/t/jobs//",
                          "tenants/t/jobs/a/",
                          "/tenants/t/jobs/a",
                          "tenants/t/jobs/a/checkpoints",
                          "tenants/t/jobs/a/checkpoints/",
                          "tenants/t/jobs/a/x",
                          "tenants/t/jobs/a/checkpoints/x",
                          "tenants/t/jobs/a/checkpoints/-1",
                          "tenants/t/jobs/a/checkpoints/007",
                          "tenants/t/jobs/a/checkpoints/+7",
                          "tenants/t/jobs/a/checkpoints/99999999999999999999",
                          "tenants/t/jobs/a/checkpoints/1/x",
                          "tenants/t/jobs/a/artifacts",
                          "tenants/t/jobs/a/artifacts/",
                          "tenants/t/datasets/f/x",
                          "tenants/t/datasets/",
                          "tenants/t/tokens/a/",
                          "tenants/t/widgets/a",
                          "jobs/a",
                          "tenant/t/jobs/a"})
    EXPECT_FALSE(ParseName(bad).has_value()) << bad;
}

TEST(NamesTest, WhatIsWrittenIsRead) {
  v1::Job job;
  job.set_id("a-1");
  job.set_owner("tenant:blue");
  EXPECT_EQ(JobName(job), "tenants/blue/jobs/a-1");
  EXPECT_EQ(ParseName(JobName(job))->id, "a-1");
  EXPECT_EQ(ParseName(JobCheckpointName(job, 7))->checkpoint_step, 7);
  const ResourceName artifact = *ParseName(ArtifactName(job, 7, "a/b"));
  EXPECT_EQ(artifact.checkpoint_step, 7);
  EXPECT_EQ(artifact.artifact, "a/b");
  EXPECT_FALSE(ParseName(ArtifactName(job, std::nullopt, "a"))->checkpoint_step.has_value());
  EXPECT_EQ(ParseName(DatasetName("blue", "f"))->kind, ResourceName::kDataset);
  EXPECT_EQ(ParseName(TokenName("blue", "f"))->kind, ResourceName::kToken);
  job.set_owner("uid:1000");
  EXPECT_EQ(ParseName(JobName(job))->tenant, "default");
}

// Another's name stays what it is, which is nobody's id.
TEST(NamesTest, AnIdComesOfTheTenantsOwnName) {
  EXPECT_EQ(IdOf(ResourceName::kDataset, "blue", "tenants/blue/datasets/f"), "f");
  EXPECT_EQ(IdOf(ResourceName::kDataset, "blue", "f"), "f");
  for (const char* other : {"tenants/red/datasets/f", "tenants/blue/tokens/f", "x/f"})
    EXPECT_EQ(IdOf(ResourceName::kDataset, "blue", other), other);
  EXPECT_EQ(DeviceOf("devices/gpu:0"), "gpu:0");
  EXPECT_EQ(DeviceOf("gpu:0"), "gpu:0");
}

}  // namespace
}  // namespace snug::server

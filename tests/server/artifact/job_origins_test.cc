#include "server/artifact/job_origins.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/job/errors.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class JobOriginsTest : public testing::Test {
 protected:
  JobOriginsTest() : origins_(index_, dir_, DaemonPrincipal()) {
    fs::create_directories(dir_ + "/base");
    Put("full-1", v1::JobSpec::METHOD_FULL, dir_ + "/base");
    Put("lora-1", v1::JobSpec::METHOD_LORA, "/models/base");
    Checkpoint("full-1", "step-000004.e1");
    Checkpoint("lora-1", "step-000002.e1");
    Checkpoint("lora-1", "step-000002.e3");
    Checkpoint("lora-1", "step-000008.e3");
  }
  ~JobOriginsTest() override { fs::remove_all(dir_); }

  void Put(const std::string& id, v1::JobSpec::Method method, const std::string& model,
           v1::Job::State state = v1::Job::STATE_SUCCEEDED) {
    JobRecord record;
    record.job.set_id(id);
    record.job.set_state(state);
    record.job.mutable_spec()->set_method(method);
    record.job.mutable_spec()->set_model(model);
    record.job.mutable_spec()->mutable_lora()->set_r(4);
    record.order = ++order_;
    record.output_dir = IsTerminal(state) ? "/outputs/" + id : "";
    index_.Put(record);
  }
  void Checkpoint(const std::string& job, const std::string& name) {
    fs::create_directories(CheckpointsDir(dir_, job) + "/" + name);
  }
  v1::JobSpec Beside(const std::string& model) {
    v1::JobSpec spec;
    spec.set_model(model);
    return spec;
  }

  const std::string dir_ = testing::TempDir() + "job_origins_test";
  int64_t order_ = 0;
  JobIndex index_;
  JobOrigins origins_;
};

TEST_F(JobOriginsTest, WhatAJobMadeIsItsOutput) {
  const ModelOrigin model = origins_.Model({.job = "full-1"}).value();
  EXPECT_EQ(model.dir, "/outputs/full-1");
  EXPECT_EQ(model.checkpoint, "");
  const AdapterOrigin adapter = origins_.Adapter({.job = "lora-1"}, Beside("/other")).value();
  EXPECT_EQ(adapter.dir, "/outputs/lora-1");
  EXPECT_EQ(adapter.checkpoint, "");
}

TEST_F(JobOriginsTest, ACheckpointThatIsAModelsFolderIsAllThatAJobNeeds) {
  const std::string folder = CheckpointsDir(dir_, "full-1") + "/step-000004.e1";
  std::ofstream(folder + "/model.safetensors") << "weights";
  v1::JobSpec spec = Beside("full-1/checkpoints/4");
  for (const auto method : {v1::JobSpec::METHOD_FULL, v1::JobSpec::METHOD_LORA}) {
    spec.set_method(method);
    const ModelOrigin model = ModelOriginOf(spec, origins_).value();
    EXPECT_EQ(model.dir, folder);
    EXPECT_EQ(model.checkpoint, "");
  }
}

// No one else could load the adapter: the user is told how to make a model of it.
TEST_F(JobOriginsTest, ACheckpointOfWeightsAloneIsNoBaseOfAnAdapter) {
  v1::JobSpec spec = Beside("full-1/checkpoints/4");
  spec.set_method(v1::JobSpec::METHOD_LORA);
  const absl::Status refused = ModelOriginOf(spec, origins_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("training.learning_rate: 0"));
  spec.set_method(v1::JobSpec::METHOD_FULL);
  EXPECT_TRUE(ModelOriginOf(spec, origins_).ok());
}

TEST_F(JobOriginsTest, ACheckpointOfWeightsAloneIsOfItsJobsBase) {
  const ModelOrigin model = origins_.Model({.job = "full-1", .step = 4}).value();
  EXPECT_EQ(model.dir, dir_ + "/base");
  EXPECT_EQ(model.checkpoint, CheckpointsDir(dir_, "full-1") + "/step-000004.e1");
}

TEST_F(JobOriginsTest, ACheckpointOfWhatBeganWithAnotherHasTheFirstsBase) {
  Put("full-2", v1::JobSpec::METHOD_FULL, "full-1/checkpoints/4");
  Checkpoint("full-2", "step-000001.e1");
  const ModelOrigin model = origins_.Model({.job = "full-2", .step = 1}).value();
  EXPECT_EQ(model.dir, dir_ + "/base");
  EXPECT_EQ(model.checkpoint, CheckpointsDir(dir_, "full-2") + "/step-000001.e1");
}

TEST_F(JobOriginsTest, OfAnAdaptersCheckpointTheLastAttemptsCounts) {
  const AdapterOrigin adapter =
      origins_.Adapter({.job = "lora-1", .step = 2}, Beside("/models/base")).value();
  EXPECT_EQ(adapter.dir, "");
  EXPECT_EQ(adapter.checkpoint, CheckpointsDir(dir_, "lora-1") + "/step-000002.e3");
  EXPECT_EQ(adapter.lora.r(), 4);
}

TEST_F(JobOriginsTest, WhatIsMissingOrOfAnotherKindIsSaid) {
  EXPECT_EQ(origins_.Model({.job = "none-1"}).status(), JobNotFound("none-1"));
  EXPECT_THAT(std::string(origins_.Model({.job = "lora-1"}).status().message()),
              HasSubstr("made an adapter, not a model"));
  EXPECT_THAT(
      std::string(origins_.Adapter({.job = "full-1"}, Beside("/models/base")).status().message()),
      HasSubstr("made a model, not an adapter"));
  EXPECT_EQ(ReasonOf(origins_.Model({.job = "full-1", .step = 3}).status()),
            "CHECKPOINT_NOT_FOUND");
  EXPECT_THAT(std::string(origins_.Adapter({.job = "lora-1", .step = 2}, Beside("/models/other"))
                              .status()
                              .message()),
              HasSubstr("trained it beside model: /models/base"));
}

// Its worker makes room for the next ones.
TEST_F(JobOriginsTest, AJobThatIsNotAtItsEndGivesNothing) {
  Put("live-1", v1::JobSpec::METHOD_FULL, dir_ + "/base", v1::Job::STATE_RUNNING);
  Checkpoint("live-1", "step-000004.e1");
  for (const JobRef& ref : {JobRef{.job = "live-1"}, JobRef{.job = "live-1", .step = 4}})
    EXPECT_EQ(ReasonOf(origins_.Model(ref).status()), "WRONG_STATE");
}

TEST_F(JobOriginsTest, TheWholeIdsAreWrittenIntoASpec) {
  v1::JobSpec spec;
  spec.set_model("tenants/default/jobs/full-1/checkpoints/4");
  spec.mutable_lora()->set_init_adapter("lora");
  ASSERT_TRUE(NameOrigins(origins_, spec).ok());
  EXPECT_EQ(spec.model(), "full-1/checkpoints/4");
  spec.set_model("tenants/red/jobs/full-1");
  EXPECT_EQ(NameOrigins(origins_, spec), JobNotFound("tenants/red/jobs/full-1"));
  spec.set_model("full-1/checkpoints/4");
  EXPECT_EQ(spec.lora().init_adapter(), "lora-1");
  v1::Job job;
  *job.mutable_spec() = spec;
  EXPECT_TRUE(BeginsWith(job, *index_.Find("full-1").value()));
  EXPECT_TRUE(BeginsWith(job, *index_.Find("lora-1").value()));
  v1::Job another = *index_.Find("full-1").value();
  another.set_id("full-2");
  EXPECT_FALSE(BeginsWith(job, another));
  job.set_owner("tenant:red");  // Whose jobs of these ids would be others.
  EXPECT_FALSE(BeginsWith(job, *index_.Find("full-1").value()));
  spec.set_model("/models/full-1");
  EXPECT_TRUE(NameOrigins(origins_, spec).ok());
  EXPECT_EQ(spec.model(), "/models/full-1");
}

TEST(JobRefTest, OnlyJobsAndTheirCheckpointsAreNamed) {
  EXPECT_EQ(ParseJobRef("abc-1"), (JobRef{.job = "abc-1"}));
  EXPECT_EQ(ParseJobRef("abc-1/checkpoints/12"), (JobRef{.job = "abc-1", .step = 12}));
  EXPECT_EQ(ParseJobRef("tenants/t/jobs/abc/checkpoints/7"),
            (JobRef{.job = "tenants/t/jobs/abc", .step = 7}));
  for (const char* other :
       {"", "/abc", "./abc", "org/name", "Abc", "abc/checkpoints/", "abc/checkpoints/07",
        "abc/checkpoints/0", "abc/checkpoints/-1", "abc/checkpoints/7/more", "abc/checkpoints/x",
        "/abc/checkpoints/7", "tenants/t/datasets/abc", "tenants/t/jobs/abc/artifacts/x"})
    EXPECT_EQ(ParseJobRef(other), std::nullopt) << other;
}

}  // namespace
}  // namespace snug::server

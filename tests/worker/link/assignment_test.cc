#include "worker/link/assignment.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snug/v1/worker.pb.h"

namespace snug::link {
namespace {

using ::testing::HasSubstr;

class AssignmentTest : public ::testing::Test {
 protected:
  AssignmentTest() { std::filesystem::create_directories(folder_); }
  ~AssignmentTest() override { std::filesystem::remove_all(folder_); }

  v1::Assignment Complete() const {
    v1::Assignment assignment;
    assignment.set_job_id("ft-1");
    assignment.set_epoch(2);
    assignment.mutable_spec()->set_model("/models/m");
    assignment.mutable_spec()->set_method(v1::JobSpec::METHOD_LORA);
    assignment.mutable_spec()->mutable_training()->set_max_grad_norm(0.0);
    assignment.mutable_spec()->mutable_training()->set_tf32(true);
    assignment.mutable_spec()->mutable_lora()->set_r(4);
    assignment.mutable_plan()->set_name("pinned");
    v1::SitesOfKind& sites = *assignment.mutable_plan()->add_recipes()->add_kinds();
    sites.set_kind("recompute");
    sites.add_sites("mlp.gate");
    assignment.mutable_plan()->add_block_recipe(0);
    assignment.mutable_plan()->mutable_key()->set_tokens(64);
    assignment.mutable_plan()->set_threads(2);
    assignment.mutable_plan()->set_arena_bytes(640);
    assignment.mutable_plan()->mutable_memory()->set_weights_bytes(128);
    assignment.set_train_data("/data/t");
    assignment.set_attempt_dir("/a");
    assignment.set_checkpoints_dir("/c");
    assignment.set_context_bytes(500);
    assignment.set_unseen_bytes(300);
    assignment.set_cap_bytes(1000);
    return assignment;
  }

  absl::StatusOr<train::AttemptOptions> Read(const v1::Assignment& assignment) const {
    std::ofstream(path_, std::ios::binary) << assignment.SerializeAsString();
    return ReadAssignment(path_);
  }

  const std::string folder_ = ::testing::TempDir() + "/assignment_test." + std::to_string(getpid());
  const std::string path_ = folder_ + "/assignment.binpb";
};

// A plan of before there were others has those of the machine.
TEST_F(AssignmentTest, RowsOfTheHeadAreThePlans) {
  v1::Assignment assignment = Complete();
  EXPECT_EQ(Read(assignment)->head_rows, 0);
  assignment.mutable_plan()->set_head_rows(8);
  EXPECT_EQ(Read(assignment)->head_rows, 8);
}

TEST_F(AssignmentTest, PlainStructsSayWhatTheMessageSays) {
  const auto attempt = Read(Complete());
  ASSERT_TRUE(attempt.ok()) << attempt.status();
  EXPECT_EQ(attempt->job_id, "ft-1");
  EXPECT_EQ(attempt->epoch, 2);
  EXPECT_TRUE(attempt->mode.lora);
  EXPECT_EQ(attempt->mode.adapter.rank, 4);
  EXPECT_TRUE(attempt->training.tf32);
  EXPECT_EQ(attempt->plan.recipes[0].stashes.at("mlp.gate"), program::Stash::kRecompute);
  EXPECT_EQ(attempt->key.tokens, 64);
  EXPECT_EQ(attempt->context_bytes, 500);
  EXPECT_EQ(attempt->unseen_bytes, 300);
  EXPECT_EQ(attempt->training.max_grad_norm, 0.0);  // Given as zero: no clipping, not the default.
  EXPECT_EQ(attempt->training.beta2, 0.999);        // Not given.
  EXPECT_EQ(attempt->base_model_name, "/models/m");
}

// A job of before there was a choice is measured as by default.
TEST_F(AssignmentTest, HowOftenAGradientIsMeasuredIsTheJobs) {
  v1::Assignment assignment = Complete();
  EXPECT_EQ(Read(assignment)->drift_steps, 200);
  EXPECT_EQ(Read(assignment)->drift_step, 0);
  assignment.mutable_spec()->mutable_memory()->set_drift_steps(0);
  assignment.set_drift_step(202);
  EXPECT_EQ(Read(assignment)->drift_steps, 0);
  EXPECT_EQ(Read(assignment)->drift_step, 202);
}

TEST_F(AssignmentTest, WhereAnExtendedJobBeginsIsNamed) {
  v1::Assignment assignment = Complete();
  EXPECT_EQ(Read(assignment)->begin_step, 0);
  assignment.set_parent_job("ft-0");
  assignment.set_begin_step(40);
  EXPECT_EQ(Read(assignment)->parent_job, "ft-0");
  EXPECT_EQ(Read(assignment)->begin_step, 40);
}

// An assignment of a daemon that knew no GPUs names none.
TEST_F(AssignmentTest, TheDeviceIsNamed) {
  v1::Assignment assignment = Complete();
  EXPECT_EQ(Read(assignment)->device, "cpu:0");
  assignment.set_device("gpu:3");
  EXPECT_EQ(Read(assignment)->device, "gpu:3");
}

// Rows held out of the dataset are lines of its file.
TEST_F(AssignmentTest, FilesAreNamedAsTheJobNamesThem) {
  v1::Assignment assignment = Complete();
  assignment.mutable_spec()->set_dataset("/home/me/train.jsonl");
  EXPECT_EQ(Read(assignment)->train_file, "train.jsonl");
  EXPECT_EQ(Read(assignment)->eval_file, "train.jsonl");
  assignment.mutable_spec()->set_eval_dataset("/home/me/eval.jsonl");
  EXPECT_EQ(Read(assignment)->train_file, "train.jsonl");
  EXPECT_EQ(Read(assignment)->eval_file, "eval.jsonl");
}

// What the plan reserves reaches the worker, which holds itself to it.
TEST_F(AssignmentTest, ThePlansBytesAreThePromise) {
  v1::Assignment assignment = Complete();
  v1::MemoryComponents& memory = *assignment.mutable_plan()->mutable_memory();
  memory.set_adapter_bytes(192);
  memory.set_gradients_bytes(256);
  memory.set_optimizer_bytes(320);
  memory.set_inputs_bytes(384);
  const auto attempt = Read(assignment);
  ASSERT_TRUE(attempt.ok()) << attempt.status();
  ASSERT_TRUE(attempt->promised.has_value());
  const program::Components& bytes = *attempt->promised;
  EXPECT_EQ(bytes.weights, 128);
  EXPECT_EQ(bytes.adapter, 192);
  EXPECT_EQ(bytes.gradients, 256);
  EXPECT_EQ(bytes.optimizer, 320);
  EXPECT_EQ(bytes.inputs, 384);
  EXPECT_EQ(bytes.arena, 640);
}

// A plan that a newer daemon made: nothing else is put in the place of what is not known.
TEST_F(AssignmentTest, AStashOfALaterVersionIsRefusedByName) {
  v1::Assignment assignment = Complete();
  assignment.mutable_plan()->mutable_recipes(0)->mutable_kinds(0)->set_kind("of_later");
  EXPECT_THAT(Read(assignment).status().message(),
              HasSubstr("plan pinned: this version does not know how to keep mlp.gate by "
                        "\"of_later\""));
}

TEST_F(AssignmentTest, AMissingFieldIsNamed) {
  v1::Assignment assignment = Complete();
  assignment.mutable_plan()->clear_memory();
  EXPECT_THAT(Read(assignment).status().message(), HasSubstr("plan.memory is missing"));
  assignment = Complete();
  assignment.clear_cap_bytes();
  EXPECT_THAT(Read(assignment).status().message(), HasSubstr("cap_bytes is missing"));
}

TEST_F(AssignmentTest, GarbageAndNothingAreErrors) {
  EXPECT_EQ(ReadAssignment(path_).status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path_) << "\xff\xff\xff not a message";
  EXPECT_EQ(ReadAssignment(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(AssignmentTest, ASpecInJsonIsReadForTools) {
  const auto spec = ParseSpecJson(
      R"({"method": "FULL", "training": {"max_steps": "20", "seed": "7", "packing": false}})");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->mode.lora);
  EXPECT_EQ(spec->training.max_steps, 20);
  EXPECT_EQ(spec->training.seed, 7u);
  EXPECT_FALSE(spec->training.packing);
  EXPECT_FALSE(ParseSpecJson(R"({"metod": "FULL"})").ok());
}

// The node reads it back as a message, and never finds half of it.
TEST_F(AssignmentTest, TheResultIsProtoJsonWithTheErrorOfAFailure) {
  train::AttemptResult result;
  result.reason = "NON_FINITE";
  result.message = "step 3";
  result.progress.global_step = 3;
  ASSERT_TRUE(WriteResult(folder_, result).ok());
  std::stringstream text;
  text << std::ifstream(folder_ + "/result.json").rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"outcome\":\"FAILED\""));
  EXPECT_THAT(text.str(), HasSubstr("\"failure_class\":\"USER\""));
  EXPECT_THAT(text.str(), HasSubstr("\"reason\":\"NON_FINITE\""));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/result.json.tmp"));
}

}  // namespace
}  // namespace snug::link

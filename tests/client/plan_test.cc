#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;

constexpr const char* kReply = R"(
  plans {
    name: "keep" peak_bytes: 5242880 relative_work: 1 step_seconds: 0.5 tokens_per_second: 2048
    fidelity: FIDELITY_EXACT kinds { kind: "keep" share: 1 }
    recipes { name: "keep" kinds { kind: "keep" sites: "mlp.gate" } }
    key { tokens: 1024 documents: 8 longest_document: 128 }
    memory { context_bytes: 1048576 weights_bytes: 524288 adapter_bytes: 1024 gradients_bytes: 1024
             optimizer_bytes: 2048 inputs_bytes: 100 data_bytes: 1048576 stash_bytes: 3145728
             scratch_bytes: 262144 workspace_bytes: 257948 }
  }
  plans {
    name: "recompute 1 of 2" peak_bytes: 3145728 relative_work: 1.166667 step_seconds: 0.583333
    tokens_per_second: 1755.4 fidelity: FIDELITY_EXACT host_bytes: 4096
    kinds { kind: "keep" share: 0.25 } kinds { kind: "recompute" share: 0.75 }
    key { tokens: 1024 documents: 8 longest_document: 128 }
    memory { context_bytes: 1048576 weights_bytes: 524288 stash_bytes: 1572864 }
  }
  chosen: 1 length_source: "max_seq_length" device: "cpu:0" device_capacity_bytes: 8388608
  budget_bytes: 4194304
  sites { name: "layers.0.norm1.out" bytes: 4096 }
  sites { name: "layers.0.attention.lse" bytes: 64 companion: true })";

constexpr const char* kLargest = R"(
  max_by_fidelity {
    fidelity: FIDELITY_EXACT
    per_device_train_batch_size: 12 max_seq_length: 4096 gradient_accumulation_steps: 1048576
  }
  max_by_fidelity {
    fidelity: FIDELITY_UNBIASED
    per_device_train_batch_size: 14 max_seq_length: 4096 gradient_accumulation_steps: 1048576
  }
  max_by_fidelity {
    fidelity: FIDELITY_APPROXIMATE
    per_device_train_batch_size: 20 max_seq_length: 8192 gradient_accumulation_steps: 1048576
  })";

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kReply, &reply_));
    server_.plan = [this](const v1::PlanJobRequest& request, v1::PlanJobResponse* reply) {
      request_ = request;
      *reply = reply_;
      return grpc::Status::OK;
    };
    server_.preview = [this](const v1::PreviewDatasetRequest& request,
                             v1::PreviewDatasetResponse*) {
      previewed_ = request;
      return preview_;
    };
    file_ = server_.folder().Write("job.yaml", "model: ./m\ndataset: ./d\nmethod: lora\n");
  }

  v1::PlanJobResponse reply_;
  v1::PlanJobRequest request_;
  v1::PreviewDatasetRequest previewed_;
  grpc::Status preview_;
  FakeServer server_;
  std::string file_;
};

// A dataset that is prepared has been looked at: what was found is said before anything runs.
TEST_F(PlanTest, PrintsWhatWasFoundInTheDataset) {
  v1::DatasetSummary& dataset = *reply_.mutable_dataset();
  dataset.set_rows(10);
  dataset.set_tokens(200);
  dataset.set_trained_tokens(50);
  dataset.set_longest_row_tokens(30);
  dataset.add_warnings("2 rows are the same as an earlier row");
  EXPECT_THAT(server_.Run({"plan", file_}).out,
              HasSubstr("dataset  10 rows, 200 tokens (25.0 % trained), longest row 30\n"
                        "warning  2 rows are the same as an earlier row\n"));
}

// Of targets the batch is told, and of what they are made.
TEST_F(PlanTest, PrintsTheSourcesOfABatch) {
  for (v1::Plan& plan : *reply_.mutable_plans()) {
    plan.mutable_key()->set_source_tokens(600);
    plan.mutable_key()->set_longest_source(90);
  }
  EXPECT_THAT(server_.Run({"plan", file_}).out,
              HasSubstr("batch    at most 1024 tokens in 8 rows, the longest of 128 tokens\n"
                        "sources  at most 600 tokens, the longest of 90 tokens\n"));
}

TEST_F(PlanTest, PrintsTheTableAndTheChoice) {
  const Ran ran = server_.Run({"plan", file_, "training.max_steps=5"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "device   cpu:0, capacity 8 MiB\n"
            "budget   4 MiB (4194304 bytes)\n"
            "lengths  from max_seq_length: the dataset is not prepared yet; every row counts in "
            "full, data as 0\n"
            "batch    at most 1024 tokens in 8 rows, the longest of 128 tokens\n"
            "bytes    in MiB\n"
            "each     context 1.0, weights 0.5\n"
            "\n"
            "   PLAN              PEAK   WORK  S/STEP  TOKENS/S  ADAPTER  GRADIENTS  OPTIMIZER  "
            "INPUTS  DATA  STASH  SCRATCH  WORKSPACE  FITS\n"
            "+  keep               5.0  1.000     0.5      2048      0.0        0.0        0.0  "
            "   0.0   1.0    3.0      0.2        0.2  no\n"
            "*  recompute 1 of 2   3.0  1.167   0.583      1755        0          0          0  "
            "     0     0    1.5        0          0  yes\n"
            "\n"
            "choice   recompute 1 of 2: 3145728 bytes (3 MiB) at its peak, 1.167 times the work of "
            "keep, 0.583 s a step, 1755 tokens/s\n"
            "larger   keep: 2 MiB more, a step is 14.29 % shorter\n");
  EXPECT_EQ(request_.spec().training().max_steps(), 5);
  EXPECT_EQ(request_.spec().model(), server_.folder().path("m"));
  EXPECT_FALSE(request_.with_sites());
}

// What is chosen though a smaller one would fit costs what that one takes less and longer.
TEST_F(PlanTest, PrintsWhatTheSmallerPlanCosts) {
  reply_.set_chosen(0);
  EXPECT_THAT(server_.Run({"plan", file_}).out,
              HasSubstr("\nsmaller  recompute 1 of 2: 2 MiB less, a step is 16.67 % longer\n"));
}

// A terminal is 80 columns wide, or not much more: only what differs between plans has a column.
TEST_F(PlanTest, WhatEveryPlanHasAlikeIsSaidOnce) {
  v1::MemoryComponents memory = reply_.plans(0).memory();
  for (v1::Plan& plan : *reply_.mutable_plans()) {
    memory.set_stash_bytes(memory.stash_bytes() / 2);
    memory.set_data_bytes(0);
    *plan.mutable_memory() = memory;
  }
  const std::string out = server_.Run({"plan", file_}).out;
  EXPECT_THAT(out, HasSubstr("each     context 1.0, weights 0.5, adapter 0.0, gradients 0.0, "
                             "optimizer 0.0, inputs 0.0, scratch 0.2, workspace 0.2\n"));
  EXPECT_THAT(out,
              HasSubstr("\n   PLAN              PEAK   WORK  S/STEP  TOKENS/S  STASH  FITS\n"));
}

// Between two plans that are shown may lie others, that a script finds.
TEST_F(PlanTest, ShowsOfManyPlansThoseThatNoFasterOneBeats) {
  reply_.mutable_plans(1)->set_name("recompute 1.00 %");
  v1::Plan beaten = reply_.plans(1);
  beaten.set_name("recompute 1 of 2");
  beaten.set_relative_work(1.2);
  *reply_.add_plans() = beaten;
  for (int i = 2; i < 100; ++i) {
    v1::Plan& plan = *reply_.add_plans();
    plan.set_name(absl::StrCat("recompute ", i, ".00 %"));
    plan.set_peak_bytes(3145728 - 1024 * i);
    plan.set_relative_work(1.2 + 0.001 * i);
  }
  const std::string out = server_.Run({"plan", file_}).out;
  EXPECT_THAT(out, ::testing::Not(HasSubstr("recompute 1 of 2")));
  for (const char* name : {"keep", "*  recompute 1.00 %", "recompute 2.00 %", "recompute 99.00 %"})
    EXPECT_THAT(out, HasSubstr(name));
  EXPECT_LT(std::count(out.begin(), out.end(), '%'), 20);
  EXPECT_THAT(out, HasSubstr(" more; --output json has all\n"));
}

// A second table, where there is a choice: what the job would be given on each of them.
TEST_F(PlanTest, ShowsEveryDeviceWhereThereAreSeveral) {
  const auto add = [&](const std::string& name, bool fits, int64_t peak) {
    v1::DeviceChoice& choice = *reply_.add_devices();
    choice.set_device(name);
    choice.set_capacity_bytes(8388608);
    choice.set_fits(fits);
    choice.set_plan("keep");
    choice.set_peak_bytes(peak);
  };
  add("cpu:0", true, 5242880);
  EXPECT_THAT(server_.Run({"plan", file_}).out, ::testing::Not(HasSubstr("DEVICE")));
  EXPECT_EQ(request_.device(), "");
  add("gpu:0", false, 9437184);
  const Ran ran = server_.Run({"plan", file_, "--device", "gpu:0"});
  EXPECT_EQ(request_.device(), "gpu:0");
  EXPECT_THAT(ran.out, HasSubstr("\n\n   DEVICE  CAPACITY  PLAN   PEAK  FITS\n"
                                 "*  cpu:0      8 MiB  keep  5 MiB  yes\n"
                                 "   gpu:0      8 MiB  keep  9 MiB  no\n"));
}

TEST_F(PlanTest, SaysWhenLengthsComeFromThePreparedDataset) {
  reply_.set_length_source("prepared dataset");
  EXPECT_THAT(server_.Run({"plan", file_}).out, HasSubstr("lengths  from prepared dataset\n"));
}

TEST_F(PlanTest, LargePlansAreInGibibytes) {
  reply_.mutable_plans(0)->set_peak_bytes(int64_t{17} << 30);
  const std::string out = server_.Run({"plan", file_}).out;
  EXPECT_THAT(out, HasSubstr("bytes    in GiB\n"));
  EXPECT_THAT(out, HasSubstr("+  keep              17.00  1.000 "));
}

TEST_F(PlanTest, ListsSitesWithBytes) {
  const Ran ran = server_.Run({"plan", file_, "--sites"});
  EXPECT_TRUE(request_.with_sites());
  EXPECT_EQ(ran.out,
            "SITE                    BYTES         NOTE\n"
            "layers.0.norm1.out       4096  4 KiB\n"
            "layers.0.attention.lse     64   64 B  kept whenever its op is not run again\n");
}

// The answer is that nothing fits; asking was no error.
TEST_F(PlanTest, ARefusalIsAnAnswer) {
  reply_.set_chosen(-1);
  reply_.set_refusal("the smallest plan needs 3145728 bytes; memory.budget is 4096");
  const Ran ran = server_.Run({"plan", file_});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("choice   none: the smallest plan needs 3145728 bytes"));
  const auto json = nlohmann::json::parse(server_.Run({"plan", file_, "--output", "json"}).out);
  EXPECT_EQ(json["chosen"], -1);
}

TEST_F(PlanTest, JsonHasEveryByte) {
  const Ran ran = server_.Run({"plan", file_, "--output", "json"});
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["plans"][0]["peak_bytes"], "5242880");
  EXPECT_EQ(json["plans"][0]["memory"]["stash_bytes"], "3145728");
  EXPECT_EQ(json["plans"][1]["memory"]["adapter_bytes"], "0");
  EXPECT_EQ(json["plans"][1]["host_bytes"], "4096");
  EXPECT_EQ(json["chosen"], 1);
  EXPECT_EQ(json["length_source"], "max_seq_length");
}

// What scripts go by: these keys of a plan and no others, names in lower case.
TEST_F(PlanTest, JsonOfAPlanIsAsItIsDocumented) {
  const auto json = nlohmann::json::parse(server_.Run({"plan", file_, "--output", "json"}).out);
  std::set<std::string> keys;
  for (const auto& [key, value] : json["plans"][1].items()) keys.insert(key);
  EXPECT_EQ(keys, (std::set<std::string>{"name", "peak_bytes", "host_bytes", "relative_work",
                                         "step_seconds", "tokens_per_second", "fidelity", "memory",
                                         "kinds"}));
  EXPECT_EQ(json["plans"][1]["fidelity"], "exact");
  EXPECT_EQ(json["plans"][1]["kinds"], (nlohmann::json{{"keep", 0.25}, {"recompute", 0.75}}));
  EXPECT_EQ(json["plans"][0]["kinds"], (nlohmann::json{{"keep", 1.0}}));
  EXPECT_EQ(json["plans"][1]["step_seconds"], 0.583333);
  EXPECT_EQ(json["refusal"], "");
  EXPECT_FALSE(json.contains("max"));
  EXPECT_FALSE(json.contains("max_by_fidelity"));
  EXPECT_FALSE(json.contains("tape"));
}

TEST_F(PlanTest, TheLargestSettingsAreAskedForByName) {
  server_.Run({"plan", file_});
  EXPECT_FALSE(request_.with_max());
  EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(kLargest, &reply_));
  *reply_.mutable_max() = reply_.max_by_fidelity(1);  // The job's own.
  EXPECT_THAT(
      server_.Run({"plan", file_, "--max"}).out,
      HasSubstr("\nmax      each at the job's other settings, by memory.fidelity; * is the job's\n"
                "SETTING                        EXACT  *UNBIASED  APPROXIMATE\n"
                "per_device_train_batch_size       12         14           20\n"
                "max_seq_length                  4096       4096         8192\n"
                "gradient_accumulation_steps  1048576    1048576      1048576\n"));
  EXPECT_TRUE(request_.with_max());
  const auto json =
      nlohmann::json::parse(server_.Run({"plan", file_, "--max", "--output", "json"}).out);
  const auto largest = [](int rows, int tokens) {
    return nlohmann::json{{"per_device_train_batch_size", rows},
                          {"max_seq_length", tokens},
                          {"gradient_accumulation_steps", 1048576}};
  };
  nlohmann::json expected = largest(14, 4096);
  expected["by_fidelity"] = {{"exact", largest(12, 4096)},
                             {"unbiased", largest(14, 4096)},
                             {"approximate", largest(20, 8192)}};
  EXPECT_EQ(json["max"], expected);
  EXPECT_FALSE(json.contains("max_by_fidelity"));
}

TEST_F(PlanTest, AMachineThatIsNotHereIsDescribed) {
  EXPECT_EQ(server_.Run({"plan", file_}).code, 0);
  EXPECT_FALSE(request_.has_machine());
  const Ran ran = server_.Run({"plan", file_, "--device-kind", "h200", "--device-memory", "24GiB",
                               "--host-memory", "64GiB"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(request_.machine().device_kind(), "h200");
  EXPECT_EQ(request_.machine().device_memory_bytes(), int64_t{24} << 30);
  EXPECT_EQ(request_.machine().host_memory_bytes(), int64_t{64} << 30);
  const Ran wrong = server_.Run({"plan", file_, "--device-memory", "24 elephants"});
  EXPECT_EQ(wrong.code, 64);
  EXPECT_THAT(wrong.err, HasSubstr("--device-memory"));
}

// Seconds that nobody measured are said to be such.
TEST_F(PlanTest, SaysByWhatSecondsAreReckoned) {
  reply_.set_rates("measured");
  EXPECT_THAT(server_.Run({"plan", file_}).out, ::testing::Not(HasSubstr("seconds")));
  reply_.set_rates("kind");
  EXPECT_THAT(server_.Run({"plan", file_}).out, HasSubstr("seconds  by the data sheet"));
  reply_.set_rates("nominal");
  EXPECT_THAT(server_.Run({"plan", file_}).out, HasSubstr("seconds  of no machine in particular"));
}

TEST_F(PlanTest, TheTapeIsPrintedAsItCame) {
  reply_.set_tape("arena of 64 bytes\n  0 block 0 forward embed_tokens:\n");
  EXPECT_EQ(server_.Run({"plan", file_, "--tape"}).out, reply_.tape());
  EXPECT_TRUE(request_.with_tape());
  EXPECT_FALSE(request_.with_timeline());
}

// What cannot be trained on is said now, by its first row, and not when the job runs.
TEST_F(PlanTest, ReadsTheFirstRowOfADatasetThatIsNotPrepared) {
  EXPECT_EQ(server_.Run({"plan", file_}).err, "");
  EXPECT_EQ(previewed_.scan_rows(), 1);
  EXPECT_EQ(previewed_.spec().dataset(), request_.spec().dataset());
  preview_ = {grpc::StatusCode::INVALID_ARGUMENT, "this is preference data (DPO)"};
  const Ran refused = server_.Run({"plan", file_});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err, "snug: this is preference data (DPO)\n");
  preview_ = {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many previews"};
  const Ran noted = server_.Run({"plan", file_});
  EXPECT_EQ(noted.code, 0);
  EXPECT_THAT(noted.err, HasSubstr("note: the dataset's first row was not read: too many"));
  reply_.set_length_source("prepared dataset");
  EXPECT_EQ(server_.Run({"plan", file_}).err, "");
}

TEST_F(PlanTest, ALearningRateFarTooHighIsNoted) {
  const Ran ran = server_.Run({"plan", file_, "learning_rate=0.5"});
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("snug: note: learning_rate 0.5 is 2500 times the usual"));
}

// A mistake in the file is found without a daemon.
TEST_F(PlanTest, AWrongFileNeedsNoDaemon) {
  server_.Stop();
  const std::string bad = server_.folder().Write("bad.yaml", "model: m\nseq_len: 5\n");
  const Ran ran = server_.Run({"plan", bad});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.err, "snug: " + bad +
                         ":2: unknown key \"seq_len\"; did you mean training.max_seq_length?\n");
}

}  // namespace
}  // namespace snug::client

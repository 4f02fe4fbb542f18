#include "client/json.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

v1::Job FromText(const char* text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  return job;
}

// The fields that scripts rely on are there before anything has happened.
TEST(JsonTest, AJobAlwaysShowsItsFields) {
  EXPECT_EQ(JsonText(JobToJson(FromText(R"(id: "a" display_name: "n" state: STATE_QUEUED)"))),
            R"({
  "id": "a",
  "name": "",
  "display_name": "n",
  "state": "QUEUED",
  "reason": "",
  "error": {},
  "progress": {
    "global_step": "0",
    "max_steps": "0",
    "loss": 0,
    "learning_rate": 0,
    "grad_norm": 0,
    "epoch": 0,
    "num_tokens": "0",
    "tokens_per_second": 0,
    "step_seconds": 0,
    "resumed_from_step": "0",
    "eval_metrics": {}
  },
  "memory": {
    "budget_bytes": "0",
    "predicted_peak_bytes": "0",
    "measured_peak_bytes": "0",
    "plan": "",
    "process_peak_bytes": "0",
    "kinds": {},
    "fidelity": "",
    "host_bytes": "0",
    "shared_bytes": "0",
    "reserved_bytes": "0",
    "looks": [],
    "uncounted_bytes": "0",
    "warning": ""
  },
  "device": "",
  "epoch": 0,
  "worker_pid": 0,
  "owner": "",
  "priority": 0,
  "labels": {},
  "parent_job": "",
  "keep": false,
  "extends_step": "0",
  "key": "",
  "drift": {},
  "drift_not_measured": "",
  "pause_cause": ""
}
)");
}

TEST(JsonTest, SixtyFourBitsAreTextAndErrorsAreComplete) {
  const Json json = JobToJson(FromText(R"(
    id: "a" state: STATE_FAILED error { reason: "OUT_OF_MEMORY" message: "m" }
    progress { global_step: 9007199254740993 loss: 1.5 eval_loss: 2.5 }
    memory { budget_bytes: 12884901888 plan: "keep" }
    spec { model: "/m" lora { target_modules: "q_proj" } training { learning_rate: 2e-4 } })"));
  EXPECT_EQ(json["error"]["reason"], "OUT_OF_MEMORY");
  EXPECT_EQ(json["error"]["field"], "");
  EXPECT_EQ(json["progress"]["global_step"], "9007199254740993");
  EXPECT_EQ(json["progress"]["eval_loss"], 2.5);
  EXPECT_EQ(json["memory"]["budget_bytes"], "12884901888");
  EXPECT_EQ(json["spec"]["lora"]["target_modules"][0], "q_proj");
  EXPECT_EQ(json["spec"]["training"]["learning_rate"], 2e-4);
  EXPECT_EQ(json["spec"]["method"], "METHOD_UNSPECIFIED");
}

// As an error of the command line names it.
TEST(JsonTest, AFailedJobsFieldIsThatOfTheJobFile) {
  const Json json = JobToJson(
      FromText(R"(state: STATE_FAILED error { reason: "BAD_FIELD" field: "spec.lora.r" })"));
  EXPECT_EQ(json["error"],
            Json::parse(R"({"reason": "BAD_FIELD", "message": "", "field": "lora.r"})"));
}

TEST(JsonTest, AStreamHasOneLinePerJob) {
  const std::string line = JsonLine(JobToJson(FromText(R"(id: "a" display_name: "x\ny")")));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(JsonTest, AListOfJobs) {
  EXPECT_EQ(JsonText(JobsToJson({})), "{\n  \"jobs\": []\n}\n");
  const Json json = JobsToJson({FromText(R"(id: "a")"), FromText(R"(id: "b")")});
  EXPECT_EQ(json["jobs"][1]["id"], "b");
  EXPECT_EQ(json["jobs"][0]["error"], Json::object());
}

}  // namespace
}  // namespace snug::client

// What a worker or a helper has written in the place of JSON: no reader of it ends the daemon.
#include "server/node/json_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/node/attempt_files.h"
#include "server/node/known_gpus.h"
#include "snug/v1/worker.pb.h"
#include "tests/server/testing/brackets.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr program::JsonLimits kLimits = {.bytes = 4096, .values = 100, .depth = 8};

class JsonFileTest : public testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }

  // Of a reader of the file `name`: what is too long, too deep or no file is damage, within memory
  // of which the long file would not leave much.
  void ExpectDamage(const std::string& name, size_t most_bytes,
                    const std::function<absl::Status()>& read) const {
    const std::string path = dir_ + "/" + name;
    WriteBrackets(path);
    rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    absl::Status status = read();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
    getrusage(RUSAGE_SELF, &after);
    EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 << 10) << "KiB";
    Write(name, Nested(most_bytes));
    status = read();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("nested deeper than"));
    fs::remove(path);
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_TRUE(absl::IsDataLoss(read()));
    fs::remove(path);
  }

  const TestFolder folder_{"json-file"};
  const std::string dir_ = folder_.path();
};

TEST_F(JsonFileTest, WhatIsWithinTheLimitsIsRead) {
  Write("a.json", R"({"a": [1, {"b": "c"}]})");
  EXPECT_EQ(ReadJson(dir_ + "/a.json", kLimits)->at("a")[1]["b"], "c");
  Write("r.json", R"({"error": {"reason": "NAN"}, "of_a_newer_version": [1]})");
  v1::WorkerResult result;
  ASSERT_TRUE(ReadJsonMessage(dir_ + "/r.json", kLimits, &result).ok());
  EXPECT_EQ(result.error().reason(), "NAN");
  EXPECT_TRUE(absl::IsNotFound(ReadJson(dir_ + "/none", kLimits).status()));
}

TEST_F(JsonFileTest, MoreValuesThanTheLimitAreDamage) {
  std::string many = "[1";
  for (int i = 0; i < 200; ++i) many += ",1";
  EXPECT_TRUE(absl::IsDataLoss(JsonOfText(many + "]", "a line", kLimits).status()));
  for (const char* text : {"", "{", "[1,]", "\xff", "{\"a\":1,\"a\":2}"})
    EXPECT_TRUE(absl::IsDataLoss(JsonOfText(text, "a line", kLimits).status())) << text;
}

TEST_F(JsonFileTest, JsonAndMessages) {
  ExpectDamage("a.json", 4096, [&] { return ReadJson(dir_ + "/a.json", kLimits).status(); });
  ExpectDamage("a.json", 4096, [&] {
    v1::WorkerResult result;
    return ReadJsonMessage(dir_ + "/a.json", kLimits, &result);
  });
}

TEST_F(JsonFileTest, ExitRecord) {
  ExpectDamage("exit.json", 4096, [&] { return ReadExitRecord(dir_, {}).status(); });
}

TEST_F(JsonFileTest, Result) {
  ExpectDamage("result.json", 1 << 20, [&] { return ReadResult(dir_).status(); });
}

// These are only remembered: what is damaged is found out anew.
TEST_F(JsonFileTest, KnownGpus) {
  const std::string path = dir_ + "/gpus.json";
  Write("gpus.json", R"({"gpu:0": {"uuid": "GPU-1", "capacity_bytes": 5}})");
  EXPECT_EQ(ReadKnownGpus(dir_).size(), 1);
  WriteBrackets(path);
  EXPECT_TRUE(ReadKnownGpus(dir_).empty());
  Write("gpus.json",
        absl::StrCat(R"({"gpu:0": {"capacity_bytes": 5, "uuid": )", Nested(60'000), "}}"));
  EXPECT_TRUE(ReadKnownGpus(dir_).empty());
}

}  // namespace
}  // namespace snug::server

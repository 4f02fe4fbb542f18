#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/worker/program/safetensors_files.h"
#include "worker/program/files/safetensors.h"

namespace snug::program {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Bytes(const std::vector<std::string>& names) {
  std::string header = "{";
  for (size_t i = 0; i < names.size(); ++i) {
    header += (i > 0 ? ",\"" : "\"") + names[i] +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(i) + "," +
              std::to_string(i + 1) + "]}";
  }
  return Safetensors(header + "}", names.size());
}

// Tensors a, b in one shard and c in another.
class ModelIndexTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "model-1.safetensors", Bytes({"a", "b"}));
    WriteFile(dir_ / "model-2.safetensors", Bytes({"c"}));
    WriteIndex(
        R"({"a":"model-1.safetensors","b":"model-1.safetensors","c":"model-2.safetensors"})");
  }

  void WriteIndex(const std::string& weight_map) {
    WriteFile(dir_ / "model.safetensors.index.json",
              R"({"metadata":{"total_size":3},"weight_map":)" + weight_map + "}");
  }

  std::string Refusal() { return std::string(ReadModelIndex(dir_).status().message()); }

  const std::filesystem::path dir_ = FreshDirectory();
};

TEST_F(ModelIndexTest, JoinsShards) {
  const absl::StatusOr<TensorIndex> index = ReadModelIndex(dir_);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->size(), 3u);
  EXPECT_EQ(index->at("b").file, (dir_ / "model-1.safetensors").string());
  EXPECT_EQ(index->at("c").file, (dir_ / "model-2.safetensors").string());
}

TEST_F(ModelIndexTest, TheOneFileComesFirst) {
  WriteFile(dir_ / "model.safetensors", Bytes({"whole"}));
  const absl::StatusOr<TensorIndex> index = ReadModelIndex(dir_);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_TRUE(index->contains("whole"));
  // And is not passed over when it is broken.
  WriteFile(dir_ / "model.safetensors", "GGUF");
  EXPECT_THAT(Refusal(), HasSubstr("UNSAFE_FORMAT"));
}

TEST_F(ModelIndexTest, RefusesShardsThatDisagreeWithTheIndex) {
  WriteFile(dir_ / "model-2.safetensors", Bytes({"c", "d"}));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("model-2.safetensors: has \"d\""), HasSubstr("no file")));
  WriteFile(dir_ / "model-2.safetensors", Bytes({"a", "c"}));
  EXPECT_THAT(Refusal(),
              HasSubstr("has \"a\", which model.safetensors.index.json places in model-1"));
  WriteFile(dir_ / "model-2.safetensors", Bytes({}));
  EXPECT_THAT(Refusal(), HasSubstr("places \"c\" in model-2.safetensors, which does not have it"));
  std::filesystem::remove(dir_ / "model-2.safetensors");
  EXPECT_EQ(ReadModelIndex(dir_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal(), HasSubstr("model-2.safetensors"));
}

TEST_F(ModelIndexTest, ShardsStayInTheirDirectory) {
  for (const std::string name :
       {"../model-1.safetensors", "/etc/model.safetensors", "sub/model.safetensors", ".safetensors",
        "model-1.bin", "", "model 1.safetensors", "model\\u0000.safetensors", "m\\n.safetensors",
        "modèle.safetensors"}) {
    WriteIndex("{\"a\":\"" + name + "\"}");
    EXPECT_THAT(Refusal(), HasSubstr("\"a\" is in \"")) << name;
  }
  WriteIndex("{\"a\":\"" + std::string(250, 'x') + ".safetensors\"}");
  EXPECT_THAT(Refusal(), HasSubstr("accepted: a file name"));
  for (const std::string value : {"1", "null", "[\"model-1.safetensors\"]"}) {
    WriteIndex("{\"a\":" + value + "}");
    EXPECT_THAT(Refusal(), HasSubstr("\"a\" is in no named file")) << value;
  }
}

TEST_F(ModelIndexTest, RefusesABrokenIndex) {
  for (const std::string map : {"{}", "[]", "null", "\"model-1.safetensors\""}) {
    WriteIndex(map);
    EXPECT_THAT(Refusal(), HasSubstr("has no tensors in \"weight_map\"")) << map;
  }
  WriteFile(dir_ / "model.safetensors.index.json", "[]");
  EXPECT_THAT(Refusal(), HasSubstr("has no tensors in \"weight_map\""));
  WriteIndex(R"({"a":"model-1.safetensors","a":"model-2.safetensors"})");
  EXPECT_THAT(Refusal(), HasSubstr("\"weight_map.a\": is there twice"));
  WriteIndex("{\"a\":[[[]]]}");
  EXPECT_THAT(Refusal(), HasSubstr("nested deeper than 4 levels"));
}

TEST_F(ModelIndexTest, CountsShards) {
  std::string map = "{";
  for (int i = 0; i < 1025; ++i) {
    const std::string number = std::to_string(i);
    map += (i > 0 ? ",\"" : "\"") + number + "\":\"" + number + ".safetensors\"";
  }
  WriteIndex(map + "}");
  EXPECT_THAT(Refusal(), HasSubstr("1025 files; at most 1024"));
}

TEST(ModelIndexWithoutWeightsTest, SaysWhatIsThereInstead) {
  const std::filesystem::path dir = FreshDirectory();
  const auto refusal = [&] { return std::string(ReadModelIndex(dir).status().message()); };
  EXPECT_EQ(ReadModelIndex(dir).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(refusal(), HasSubstr("has neither model.safetensors nor model.safetensors.index"));
  WriteFile(dir / "pytorch_model.bin", "");
  EXPECT_THAT(refusal(), HasSubstr("it has pytorch_model.bin, which is not"));
}

}  // namespace
}  // namespace snug::program

#include "server/artifact/checkpoints.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "nlohmann/json.hpp"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "tests/server/testing/brackets.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class CheckpointsTest : public testing::Test {
 protected:
  std::string Save(const std::string& name, int64_t step, int epoch) {
    const std::string dir = dir_ + "/" + name;
    fs::create_directories(dir);
    WriteText(dir + "/weights", name);
    const nlohmann::json manifest = {
        {"step", step},
        {"epoch", epoch},
        {"files", {{"weights", {{"bytes", name.size()}, {"sha256", Sha256Hex(name)}}}}}};
    WriteText(dir + "/MANIFEST.json", manifest.dump());
    return dir;
  }
  const TestFolder folder_{"checkpoints"};
  const std::string dir_ = folder_.path();
};

TEST_F(CheckpointsTest, NamesAreReadExactly) {
  EXPECT_EQ(ParseCheckpointName("step-000123.e4")->step, 123);
  EXPECT_EQ(ParseCheckpointName("step-000123.e4")->epoch, 4);
  for (const char* bad : {"step-1.e1.tmp", "step-.e1", "step-1", "1.e1", "step-1.e0", ".trash"})
    EXPECT_FALSE(ParseCheckpointName(bad).has_value()) << bad;
}

TEST_F(CheckpointsTest, NewestByStepThenEpoch) {
  Save("step-000010.e1", 10, 1);
  Save("step-000005.e2", 5, 2);
  const std::string newest = Save("step-000010.e2", 10, 2);
  Save("step-000015.e1.tmp", 15, 1);
  const CheckpointScan scan = FindNewest("a", dir_).value();
  EXPECT_EQ(scan.newest->dir, newest);
}

// Every way to damage the newest one: the older one is taken, and the damaged one is said to be so.
TEST_F(CheckpointsTest, DamagedOneIsPassedOver) {
  const std::string older = Save("step-000005.e1", 5, 1);
  const auto damages = {
      +[](const std::string& dir) { WriteText(dir + "/weights", "step-000010.eX"); },
      +[](const std::string& dir) { WriteText(dir + "/weights", "short"); },
      +[](const std::string& dir) { fs::remove(dir + "/weights"); },
      +[](const std::string& dir) { fs::remove(dir + "/MANIFEST.json"); },
      +[](const std::string& dir) { WriteText(dir + "/MANIFEST.json", "{}"); },
      +[](const std::string& dir) {
        fs::remove(dir + "/weights");
        fs::create_symlink("/etc/hostname", dir + "/weights");
      },
  };
  for (auto* damage : damages) {
    const std::string newest = Save("step-000010.e1", 10, 1);
    damage(newest);
    const CheckpointScan scan = FindNewest("a", dir_).value();
    EXPECT_EQ(scan.newest->dir, older);
    EXPECT_EQ(scan.records.at(0).state, CheckpointRecord::kCorrupt);
    fs::remove_all(newest);
  }
}

// F-25
TEST_F(CheckpointsTest, AllDamagedIsAnErrorAndNoneIsNot) {
  EXPECT_FALSE(FindNewest("a", dir_).value().newest.has_value());
  WriteText(Save("step-000005.e1", 5, 1) + "/weights", "x");
  EXPECT_TRUE(absl::IsDataLoss(FindNewest("a", dir_).status()));
}

// Of the attempts that came to that step the last one's that is good.
TEST_F(CheckpointsTest, OneIsFoundByItsStep) {
  const std::string first = Save("step-000005.e1", 5, 1), second = Save("step-000005.e2", 5, 2);
  Save("step-000010.e1", 10, 1);
  EXPECT_EQ(FindAt("a", dir_, 5)->dir, second);
  EXPECT_EQ(FindAt("a", dir_, 5)->job, "a");
  fs::remove(second + "/MANIFEST.json");
  EXPECT_EQ(FindAt("a", dir_, 5)->dir, first);
  WriteText(first + "/weights", "x");
  EXPECT_EQ(ReasonOf(FindAt("a", dir_, 5).status()), "CHECKPOINTS_DAMAGED");
  EXPECT_EQ(ReasonOf(FindAt("a", dir_, 7).status()), "CHECKPOINT_NOT_FOUND");
}

// A manifest that was copied from another step, and one that points out of its folder.
TEST_F(CheckpointsTest, ManifestMustBeOfItsFolder) {
  EXPECT_FALSE(VerifyCheckpoint("a", Save("step-000007.e1", 8, 1)).ok());
  const std::string dir = Save("step-000009.e1", 9, 1);
  WriteText(
      dir + "/MANIFEST.json",
      R"({"step":9,"epoch":1,"files":{"../step-000007.e1/weights":{"bytes":14,"sha256":""}}})");
  EXPECT_FALSE(VerifyCheckpoint("a", dir).ok());
}

// A model's templates lie in a folder of their own.
TEST_F(CheckpointsTest, FilesBelowItsFoldersAreVerified) {
  const std::string dir = Save("step-000009.e1", 9, 1);
  const auto verify_with = [&](const std::string& name) {
    nlohmann::json manifest = nlohmann::json::parse(ReadText(dir + "/MANIFEST.json"));
    const nlohmann::json entry = *manifest["files"].begin();
    manifest["files"] = {{name, entry}};
    WriteText(dir + "/MANIFEST.json", manifest.dump());
    return VerifyCheckpoint("a", dir).ok();
  };
  fs::create_directory(dir + "/more");
  fs::copy(dir + "/weights", dir + "/more/weights");
  EXPECT_TRUE(verify_with("more/weights"));
  for (const char* name : {"more/../weights", "/weights", "more//weights", "more/", "."})
    EXPECT_FALSE(verify_with(name)) << name;
  WriteText(dir + "/more/weights", "step-000009.eX");
  EXPECT_FALSE(verify_with("more/weights"));
}

TEST_F(CheckpointsTest, AManifestOfBracketsIsDamage) {
  const std::string dir = Save("step-000009.e1", 9, 1);
  WriteBrackets(dir + "/MANIFEST.json");
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint("a", dir).status()));
  WriteText(dir + "/MANIFEST.json", Nested(1 << 20));
  EXPECT_TRUE(absl::IsDataLoss(VerifyCheckpoint("a", dir).status()));
}

}  // namespace
}  // namespace snug::server

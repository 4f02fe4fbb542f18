#include "client/hub_cache.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/job_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A cache as huggingface_hub lays it out: main is commit c1 of org/base, v2 is another commit.
class HubCacheTest : public ::testing::Test {
 protected:
  HubCacheTest() {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(name);
    char name[] = "/tmp/snug-test-XXXXXX";
    home_ = mkdtemp(name);
    setenv("HOME", home_.c_str(), 1);
    setenv("HF_HUB_CACHE", Hub().c_str(), 1);
    Write("models--org--base/refs/main", "c1\n");
    Write("models--org--base/refs/v2", "c2");
    Write("models--org--base/snapshots/c1/config.json", "{}");
    Write("models--org--base/snapshots/c2/config.json", "{}");
  }
  ~HubCacheTest() override { fs::remove_all(home_); }

  std::string Hub() const { return (home_ / "hub").string(); }
  void Write(const std::string& path, const std::string& text) {
    const fs::path file = fs::path(Hub()) / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  absl::StatusOr<v1::JobSpec> Read(const std::string& text) {
    return ParseJobFile(text, (home_ / "job.yaml").string(), {});
  }

  fs::path home_;
};

TEST_F(HubCacheTest, IdsAreTwoNames) {
  for (const char* id : {"org/name", "Qwen/Qwen2.5-0.5B_x", "a/b@v1.0"}) EXPECT_TRUE(IsHubId(id));
  for (const char* path : {"name", "./name", "../name", "/a/b", "a/b/c", "a/", "a b/c", "~/m"})
    EXPECT_FALSE(IsHubId(path)) << path;
}

TEST_F(HubCacheTest, FolderFollowsTheVariables) {
  setenv("HF_HUB_CACHE", "/a", 1);
  EXPECT_EQ(HubCacheFolder(), "/a");
  unsetenv("HF_HUB_CACHE");
  setenv("HF_HOME", "/b", 1);
  EXPECT_EQ(HubCacheFolder(), "/b/hub");
  unsetenv("HF_HOME");
  setenv("XDG_CACHE_HOME", "/c", 1);
  EXPECT_EQ(HubCacheFolder(), "/c/huggingface/hub");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(HubCacheFolder(), home_.string() + "/.cache/huggingface/hub");
}

TEST_F(HubCacheTest, AModelIsItsSnapshot) {
  const std::string snapshots = Hub() + "/models--org--base/snapshots/";
  EXPECT_EQ(Read("model: org/base")->model(), snapshots + "c1");
  EXPECT_EQ(Read("model: org/base@v2")->model(), snapshots + "c2");
  EXPECT_EQ(Read("model: org/base@c2")->model(), snapshots + "c2");
}

// A folder of the user's own comes first.
TEST_F(HubCacheTest, PathsComeFirst) {
  fs::create_directories(home_ / "org/base");
  EXPECT_EQ(Read("model: org/base")->model(), (home_ / "org/base").string());
}

TEST_F(HubCacheTest, WhatIsNotThereIsDownloadedByACommand) {
  const absl::Status other = Read("model: org/other").status();
  EXPECT_TRUE(absl::IsNotFound(other));
  EXPECT_THAT(std::string(other.message()), HasSubstr(Hub() + "/models--org--other"));
  EXPECT_THAT(std::string(other.message()), HasSubstr("hf download org/other"));
  const std::string revision(Read("model: org/base@v3").status().message());
  EXPECT_THAT(revision, HasSubstr("snapshots/v3"));
  EXPECT_THAT(revision, HasSubstr("hf download org/base --revision v3"));
  const std::string dataset(Read("model: /m\ndataset: org/rows").status().message());
  EXPECT_THAT(dataset, HasSubstr("hf download org/rows --repo-type dataset"));
}

// Which of its files are a split's, the daemon's reader finds out.
TEST_F(HubCacheTest, ADatasetIsItsSnapshot) {
  Write("datasets--org--rows/refs/main", "d1");
  Write("datasets--org--rows/snapshots/d1/README.md", "rows");
  EXPECT_EQ(Read("model: /m\ndataset: org/rows")->dataset(),
            Hub() + "/datasets--org--rows/snapshots/d1");
}

// Else what the datasets library has loaded, of the configuration that the job names.
TEST_F(HubCacheTest, ADatasetMayBeInTheCacheOfTheLibrary) {
  setenv("HF_DATASETS_CACHE", Hub().c_str(), 1);
  Write("org___rows/default/0.0.0/h1/dataset_info.json", "{}");
  const std::string loaded = Hub() + "/org___rows/default/0.0.0/h1";
  EXPECT_EQ(Read("model: /m\ndataset: org/rows")->dataset(), loaded);
  Write("org___rows/other/0.0.0/h2/dataset_info.json", "{}");
  EXPECT_TRUE(absl::IsNotFound(Read("model: /m\ndataset: org/rows").status()));
  EXPECT_EQ(Read("model: /m\ndataset: org/rows\ndataset_config: default")->dataset(), loaded);
  unsetenv("HF_DATASETS_CACHE");
}

// "data/train.jsonl" is spelled like an id: when nothing is there, it is a file that is missing.
TEST_F(HubCacheTest, AFileThatIsMissingIsNoId) {
  EXPECT_EQ(Read("model: /m\ndataset: data/train.jsonl")->dataset(),
            (home_ / "data/train.jsonl").string());
}

}  // namespace
}  // namespace snug::client

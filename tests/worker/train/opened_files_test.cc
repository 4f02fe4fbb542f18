// A path that has become another file since the job's owner was let open it is refused by whatever
// reads it in the worker.
#include "worker/program/files/opened_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/worker/program/safetensors_files.h"
#include "worker/checkpoint/read_file.h"
#include "worker/program/files/regular_file.h"
#include "worker/train/failure.h"
#include "worker/weights/mapped_file.h"

namespace snug::program {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

class OpenedFilesTest : public testing::Test {
 protected:
  OpenedFilesTest() {
    fs::create_directory(model_);
    weights_ = WriteFile(model_ / "weights", "weights");
    secret_ = WriteFile(dir_ / "secret", "secrets");  // Of as many bytes.
    opened_.folders = {model_};
    opened_.files[weights_] = Identity(weights_);
    KeepToOpened(&opened_);
  }
  ~OpenedFilesTest() override { KeepToOpened(nullptr); }

  static FileIdentity Identity(const std::string& path) {
    struct stat about = {};
    EXPECT_EQ(stat(path.c_str(), &about), 0);
    return IdentityOf(about);
  }
  // What each way of reading says.
  static std::vector<absl::Status> Read(const std::string& path) {
    return {RegularFile::Open(path).status(), weights::MappedFile::Open(path).status(),
            checkpoint::OpenFile::Open(path, checkpoint::Links::kFollow).status()};
  }
  void ExpectRefused() const {
    for (const absl::Status& status : Read(weights_)) {
      EXPECT_TRUE(IsInputChanged(status)) << status;
      EXPECT_THAT(status.message(), testing::HasSubstr(weights_));
      EXPECT_STREQ(train::FailureOf(status).reason, "INPUT_CHANGED");
    }
  }

  const fs::path dir_ = FreshDirectory();
  const fs::path model_ = dir_ / "model";
  std::string weights_, secret_;
  OpenedFiles opened_;
};

TEST_F(OpenedFilesTest, WhatWasOpenedIsRead) {
  for (const absl::Status& status : Read(weights_)) EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(IsSomethingAt(weights_));
  // The same file by way of a link, as in a cache of models.
  fs::rename(weights_, dir_ / "blob");
  fs::create_symlink(dir_ / "blob", weights_);
  for (const absl::Status& status : Read(weights_)) EXPECT_TRUE(status.ok()) << status;
}

// In the daemon, which leaves what users name to others.
TEST_F(OpenedFilesTest, WhatLiesElsewhereIsNotRead) {
  KeepToOpened(nullptr);
  ReadOnlyBelow({model_});
  for (const absl::Status& status : Read(weights_)) EXPECT_TRUE(status.ok()) << status;
  fs::create_symlink(model_, dir_ / "other_name");
  for (const char* path : {"other_name/weights", "model/../model//weights"})
    EXPECT_TRUE(RegularFile::Open(dir_ / path).ok()) << path;
  for (const std::string& path : {secret_, (model_ / "../secret").string()})
    for (const absl::Status& status : Read(path))
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  ReadOnlyBelow({});
}

TEST_F(OpenedFilesTest, ALinkToAnotherFileIsRefused) {
  fs::remove(weights_);
  fs::create_symlink(secret_, weights_);
  ExpectRefused();
}

TEST_F(OpenedFilesTest, AnotherContentIsRefused) {
  const timespec times[] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 1, .tv_nsec = 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, weights_.c_str(), times, 0), 0);
  ExpectRefused();
}

TEST_F(OpenedFilesTest, WhatWasNotOpenedIsNotThere) {
  const std::string added = model_ / "added";
  fs::create_symlink(secret_, added);
  for (const absl::Status& status : Read(added)) EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_FALSE(IsSomethingAt(added));
  EXPECT_THAT(*NamesIn(model_, 10), ElementsAre("weights"));
}

TEST_F(OpenedFilesTest, OtherFoldersAreReadAsEver) {
  for (const absl::Status& status : Read(secret_)) EXPECT_TRUE(status.ok()) << status;
  fs::create_directory(model_ / "below");
  const std::string below = WriteFile(model_ / "below" / "file", "text");
  for (const absl::Status& status : Read(below)) EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace snug::program

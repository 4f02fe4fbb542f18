#include "worker/checkpoint/new_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/worker/checkpoint/testbed.h"

namespace snug::checkpoint {
namespace {

using testing::HasSubstr;

// What absl makes of these is memory (RESOURCE_EXHAUSTED) and a number (OUT_OF_RANGE).
TEST(NewFileTest, NoRoomAndABrokenDiskAreNeitherMemoryNorANumber) {
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    EXPECT_EQ(WriteError(error, "x").code(), absl::StatusCode::kUnavailable) << error;
  }
  EXPECT_EQ(WriteError(EIO, "x").code(), absl::StatusCode::kAborted);
  EXPECT_EQ(WriteError(ENOENT, "x").code(), absl::StatusCode::kNotFound);
}

TEST(NewFileTest, MakesFoldersThatAreThereAlready) {
  const TempFolder folder;
  SNUG_ASSERT_OK(MakeFolders(folder / "a/b"));
  SNUG_ASSERT_OK(MakeFolders(folder / "a/b"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b"));
}

// mkdir says of it what it says of a folder that another process was faster to make.
TEST(NewFileTest, AFileInAFoldersPlaceIsNoFolder) {
  const TempFolder folder;
  WriteText(folder / "a", "");
  const absl::Status status = MakeFolders(folder / "a");
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cannot create the folder " + (folder / "a")));
  EXPECT_FALSE(MakeFolders(folder / "a/b").ok());
}

// Over the last one, and over what a killed process left aside.
TEST(NewFileTest, ReplacesAFileWhole) {
  const TempFolder folder;
  WriteText(folder / "result.tmp", "half of a longer text");
  SNUG_ASSERT_OK(ReplaceFile(folder / "result", "first"));
  SNUG_ASSERT_OK(ReplaceFile(folder / "result", "next"));
  EXPECT_EQ(ReadText(folder / "result"), "next");
  EXPECT_FALSE(std::filesystem::exists(folder / "result.tmp"));
}

}  // namespace
}  // namespace snug::checkpoint

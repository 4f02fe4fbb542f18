#include "server/artifact/file_hashes.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "server/data/sha256.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

class FileHashesTest : public testing::Test {
 protected:
  static FileState StateOf(const std::string& path) {
    struct stat file {};
    EXPECT_EQ(lstat(path.c_str(), &file), 0);
    return FileState(file);
  }
  const TestFolder folder_{"hashes"};
  const std::string dir_ = folder_.path();
};

TEST_F(FileHashesTest, AFileIsReadOnce) {
  const std::string path = dir_ + "/a";
  WriteText(path, "content");
  FileHashes hashes;
  EXPECT_FALSE(hashes.Find(StateOf(path)).has_value());
  EXPECT_EQ(hashes.HashOf(path).value(), Sha256Hex("content"));
  EXPECT_EQ(hashes.Find(StateOf(path)), Sha256Hex("content"));
  // What is known is believed: the same file is not read again.
  FileHashes told;
  told.Put(StateOf(path), "told");
  EXPECT_EQ(told.HashOf(path).value(), "told");
  fs::rename(path, dir_ + "/b");
  EXPECT_EQ(hashes.HashOf(dir_ + "/b").value(), Sha256Hex("content"));
}

TEST_F(FileHashesTest, AChangedFileIsAnother) {
  const std::string path = dir_ + "/a";
  WriteText(path, "content");
  FileHashes hashes;
  ASSERT_TRUE(hashes.HashOf(path).ok());
  const fs::file_time_type written = fs::last_write_time(path);
  WriteText(path, "CONTENT");
  fs::last_write_time(path, written);  // As long, and as old, as it was.
  EXPECT_EQ(hashes.HashOf(path).value(), Sha256Hex("CONTENT"));
}

TEST_F(FileHashesTest, WhatIsKnownLongestIsForgotten) {
  FileHashes hashes(/*most=*/2);
  for (const char* name : {"/a", "/b", "/c"}) {
    WriteText(dir_ + name, name);
    ASSERT_TRUE(hashes.HashOf(dir_ + name).ok());
  }
  EXPECT_FALSE(hashes.Find(StateOf(dir_ + "/a")).has_value());
  EXPECT_TRUE(hashes.Find(StateOf(dir_ + "/b")).has_value());
  EXPECT_TRUE(hashes.Find(StateOf(dir_ + "/c")).has_value());
}

TEST_F(FileHashesTest, OnlyFilesHaveHashes) {
  FileHashes hashes;
  WriteText(dir_ + "/a", "content");
  fs::create_symlink(dir_ + "/a", dir_ + "/link");
  EXPECT_FALSE(hashes.HashOf(dir_ + "/link").ok());
  EXPECT_FALSE(hashes.HashOf(dir_).ok());
  EXPECT_FALSE(hashes.HashOf(dir_ + "/none").ok());
}

}  // namespace
}  // namespace snug::server

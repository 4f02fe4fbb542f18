#include "client/output_folder.h"

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "client/file_hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class OutputFolderTest : public ::testing::Test {
 protected:
  OutputFolderTest() {
    char name[] = "/tmp/snug-test-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~OutputFolderTest() override { fs::remove_all(folder_); }

  OutputFolder Created(const std::string& name) {
    auto output = OutputFolder::Create((folder_ / name).string(), "job");
    EXPECT_TRUE(output.ok()) << output.status();
    return *std::move(output);
  }

  std::string Content(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }

  // Nothing lies around but `expected`.
  void ExpectEntries(int expected) {
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), expected);
  }

  fs::path folder_;
};

TEST_F(OutputFolderTest, FilesAppearTogetherAtTheEnd) {
  OutputFolder output = Created("out");
  ASSERT_TRUE(output.Begin("a.txt", 5).ok());
  ASSERT_TRUE(output.Append("ab").ok());
  ASSERT_TRUE(output.Append("cde").ok());
  ASSERT_TRUE(output.Begin("sub/empty", 0).ok());
  EXPECT_FALSE(fs::exists(folder_ / "out"));
  ASSERT_TRUE(output.Commit().ok());
  EXPECT_EQ(Content("out/a.txt"), "abcde");
  EXPECT_TRUE(fs::exists(folder_ / "out/sub/empty"));
  ExpectEntries(1);
  const mode_t mask = umask(0);
  umask(mask);
  EXPECT_EQ(static_cast<mode_t>(fs::status(folder_ / "out").permissions()), 0777 & ~mask);
}

TEST_F(OutputFolderTest, WhatIsNotCommittedIsGoneOnWith) {
  std::string partial;
  {
    OutputFolder output = Created("out");
    partial = output.partial();
    EXPECT_FALSE(output.has_some());
    EXPECT_EQ(output.Begin("a", 4).value(), 0);
    ASSERT_TRUE(output.Append("ab").ok());
    EXPECT_TRUE(output.has_some());
    // Nobody else fills it meanwhile.
    EXPECT_THAT(OutputFolder::Create((folder_ / "out").string(), "job").status().message(),
                HasSubstr("is being filled by another download"));
  }
  EXPECT_EQ(Content(fs::path(partial).filename().string() + "/a"), "ab");
  {
    const auto other = OutputFolder::Create((folder_ / "out").string(), "another job");
    EXPECT_NE(other->partial(), partial);  // What came is of one job.
  }
  OutputFolder output = Created("out");
  EXPECT_EQ(output.Begin("a", 4).value(), 2);
  ASSERT_TRUE(output.Append("cd").ok());
  EXPECT_TRUE(output.Check(Sha256Of("abcd").value()).ok());
  EXPECT_TRUE(output.Commit().ok());
  EXPECT_EQ(Content("out/a"), "abcd");
  ExpectEntries(1);
}

TEST_F(OutputFolderTest, WithoutAFileNothingIsLeft) {
  { OutputFolder output = Created("out"); }
  ExpectEntries(0);
}

TEST_F(OutputFolderTest, AFileOfAnotherHashGoes) {
  OutputFolder output = Created("out");
  ASSERT_TRUE(output.Begin("a", 2).ok());
  ASSERT_TRUE(output.Append("ab").ok());
  EXPECT_THAT(output.Check(Sha256Of("ac").value()).message(), HasSubstr("a has the SHA-256 "));
  EXPECT_FALSE(output.has_some());
  EXPECT_EQ(output.Begin("a", 2).value(), 0);
  ASSERT_TRUE(output.Append("a").ok());
  EXPECT_FALSE(output.Check(Sha256Of("a").value()).ok());  // It is not whole.
}

// A folder that is not this user's alone may hold what he does not know of.
TEST_F(OutputFolderTest, APlaceThatOthersMayWriteToIsRefused) {
  std::string partial;
  {
    OutputFolder output = Created("out");
    partial = output.partial();
    ASSERT_TRUE(output.Begin("a", 4).ok());
  }
  fs::permissions(partial, fs::perms(0777));
  EXPECT_THAT(OutputFolder::Create((folder_ / "out").string(), "job").status().message(),
              HasSubstr("is not yours alone"));
  fs::remove_all(partial);
  fs::create_directory_symlink("/tmp", partial);
  EXPECT_FALSE(OutputFolder::Create((folder_ / "out").string(), "job").ok());
}

TEST_F(OutputFolderTest, OnlyWhatIsNamedIsKept) {
  OutputFolder output = Created("out");
  for (const char* path : {"a", "sub/b", "sub/c"}) ASSERT_TRUE(output.Begin(path, 0).ok());
  fs::create_symlink("/etc/hostname", fs::path(output.partial()) / "link");
  ASSERT_TRUE(output.KeepOnly({"a", "sub/b"}).ok());
  EXPECT_TRUE(fs::exists(fs::path(output.partial()) / "sub/b"));
  EXPECT_FALSE(fs::exists(fs::path(output.partial()) / "sub/c"));
  EXPECT_FALSE(fs::exists(fs::symlink_status(fs::path(output.partial()) / "link")));
}

TEST_F(OutputFolderTest, AnEmptyFolderIsTakenAFullOneIsNot) {
  fs::create_directories(folder_ / "empty");
  OutputFolder output = Created("empty/");
  ASSERT_TRUE(output.Begin("a", 0).ok());
  EXPECT_TRUE(output.Commit().ok());
  const absl::Status again = OutputFolder::Create((folder_ / "empty").string(), "job").status();
  EXPECT_EQ(again.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(again.message(), HasSubstr("empty is not empty; nothing was written"));
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT(OutputFolder::Create((folder_ / "file").string(), "job").status().message(),
              HasSubstr("is no folder"));
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "link");
  EXPECT_FALSE(OutputFolder::Create((folder_ / "link").string(), "job").ok());
}

TEST_F(OutputFolderTest, FoldersAboveAreMade) {
  OutputFolder output = Created("x/y/out");
  ASSERT_TRUE(output.Begin("a", 0).ok());
  EXPECT_TRUE(output.Commit().ok());
  EXPECT_TRUE(fs::exists(folder_ / "x/y/out/a"));
}

TEST_F(OutputFolderTest, PathsThatLeadOutAreRefused) {
  for (const char* bad :
       {"", "/etc/passwd", "../x", "a/../../x", "a/..", ".", "./a", "a//b", "a/"}) {
    EXPECT_FALSE(CheckRelativePath(bad).ok()) << bad;
    OutputFolder output = Created("out");
    EXPECT_FALSE(output.Begin(bad, 0).ok()) << bad;
  }
  EXPECT_FALSE(CheckRelativePath(std::string("a\0b", 3)).ok());
  EXPECT_FALSE(CheckRelativePath(std::string(1025, 'a')).ok());
  EXPECT_TRUE(CheckRelativePath("a/b.c/..d").ok());
  ExpectEntries(0);
}

TEST_F(OutputFolderTest, SizesMustBeWhatWasSaid) {
  OutputFolder more = Created("more");
  ASSERT_TRUE(more.Begin("a", 2).ok());
  EXPECT_THAT(more.Append("abc").message(), HasSubstr("more of a than its 2 bytes"));
  OutputFolder fewer = Created("fewer");
  ASSERT_TRUE(fewer.Begin("a", 2).ok());
  ASSERT_TRUE(fewer.Append("a").ok());
  EXPECT_THAT(fewer.Commit().message(), HasSubstr("only 1 of 2 bytes of a came"));
  EXPECT_THAT(Created("none").Commit().message(), HasSubstr("no files"));
  EXPECT_THAT(Created("nameless").Append("x").message(), HasSubstr("before a file's name"));
}

TEST_F(OutputFolderTest, AFileThatComesTwiceIsRefused) {
  OutputFolder output = Created("out");
  ASSERT_TRUE(output.Begin("a", 0).ok());
  EXPECT_THAT(output.Begin("a", 0).status().message(), HasSubstr("the daemon sent a twice"));
}

}  // namespace
}  // namespace snug::client

// Files that clients send: whole or not there, gone on with, found by their owners alone.
#include "server/upload/uploads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/data/sha256.h"
#include "server/job/errors.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kOwner = "tenant:a";

class UploadsTest : public testing::Test {
 protected:
  static v1::UploadHeader Header(const std::string& name, const std::string& sha256 = "",
                                 int64_t offset = 0) {
    v1::UploadHeader header;
    header.set_filename(name);
    header.set_sha256(sha256);
    header.set_offset(offset);
    return header;
  }
  absl::StatusOr<v1::File> Send(const v1::UploadHeader& header, const std::string& content) {
    auto reception = uploads_.Begin(kOwner, header);
    if (!reception.ok()) return reception.status();
    const absl::Status appended = (*reception)->Append(content);
    return appended.ok() ? (*reception)->Finish() : appended;
  }
  size_t Entries() const {
    return static_cast<size_t>(std::distance(
        fs::directory_iterator(absl::StrCat(dir_, "/", kOwner)), fs::directory_iterator()));
  }
  static std::string Content(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  const TestFolder folder_{"uploads"};
  const std::string dir_ = folder_.path() + "/uploads";
  const Uploads uploads_{dir_};
};

TEST_F(UploadsTest, AFileIsWhatWasSent) {
  const v1::File file = Send(Header("my data (1).jsonl.gz"), "some rows").value();
  EXPECT_TRUE(IsFileId(file.id())) << file.id();
  EXPECT_EQ(file.filename(), "my data (1).jsonl.gz");
  EXPECT_EQ(file.bytes(), 9);
  EXPECT_EQ(file.sha256(), Sha256Hex("some rows"));
  const std::string path = uploads_.PathOf(kOwner, file.id()).value();
  EXPECT_EQ(Content(path), "some rows");
  EXPECT_THAT(path, testing::EndsWith("/dataset.jsonl.gz"));  // None of its name but the endings.
  EXPECT_EQ(uploads_.Find(kOwner, file.id()).value().SerializeAsString(), file.SerializeAsString());
}

TEST_F(UploadsTest, TheSameFileAgainIsTheSame) {
  const v1::File first = Send(Header("a.jsonl"), "rows").value();
  const v1::File again = Send(Header("a.jsonl"), "rows").value();
  EXPECT_EQ(first.SerializeAsString(), again.SerializeAsString());
  EXPECT_NE(Send(Header("b.jsonl"), "rows").value().id(), first.id());
  EXPECT_EQ(uploads_.List(kOwner).size(), 2);
  EXPECT_EQ(Entries(), 2);
}

TEST_F(UploadsTest, OnlyItsOwnerFindsIt) {
  const v1::File file = Send(Header("a.jsonl"), "rows").value();
  EXPECT_EQ(ReasonOf(uploads_.Find("tenant:b", file.id()).status()), "FILE_NOT_FOUND");
  EXPECT_EQ(ReasonOf(uploads_.PathOf(kOwner, "../" + file.id()).status()), "FILE_NOT_FOUND");
  EXPECT_EQ(uploads_.List("tenant:b").size(), 0);
}

TEST_F(UploadsTest, WhatBreaksOffIsNotThereUnlessItsHashIsKnown) {
  { EXPECT_TRUE((*uploads_.Begin(kOwner, Header("a.jsonl")))->Append("ro").ok()); }
  EXPECT_EQ(Entries(), 0);
  const std::string hash = Sha256Hex("rows");
  { EXPECT_TRUE((*uploads_.Begin(kOwner, Header("a.jsonl", hash)))->Append("ro").ok()); }
  EXPECT_EQ(uploads_.Received(kOwner, hash), 2);
  EXPECT_EQ(uploads_.List(kOwner).size(), 0);
  EXPECT_EQ(ReasonOf(uploads_.Begin(kOwner, Header("a.jsonl", hash, 3)).status()), "WRONG_OFFSET");
  const v1::File file = Send(Header("a.jsonl", hash, 2), "ws").value();
  EXPECT_EQ(Content(uploads_.PathOf(kOwner, file.id()).value()), "rows");
  EXPECT_EQ(uploads_.Received(kOwner, hash), 0);
}

// F-50
TEST_F(UploadsTest, AnotherContentThanWasSaidIsRefusedAndGone) {
  const std::string hash = Sha256Hex("rows");
  EXPECT_EQ(ReasonOf(Send(Header("a.jsonl", hash), "rats").status()), "WRONG_CONTENT");
  EXPECT_EQ(Entries(), 0);
}

TEST_F(UploadsTest, BadHeadersNameTheField) {
  const std::string long_name(256, 'a');
  for (const std::string& name :
       {std::string(), std::string("../a"), std::string(".hidden"), std::string("a\nb"), long_name})
    EXPECT_THAT(std::string(uploads_.Begin(kOwner, Header(name)).status().message()),
                HasSubstr("header.filename"));
  EXPECT_THAT(std::string(uploads_.Begin(kOwner, Header("a", "XYZ")).status().message()),
              HasSubstr("header.sha256"));
  EXPECT_THAT(std::string(uploads_.Begin(kOwner, Header("a", "", 1)).status().message()),
              HasSubstr("header.offset"));
}

TEST_F(UploadsTest, ADeletedFileIsGone) {
  const v1::File file = Send(Header("a.jsonl"), "rows").value();
  EXPECT_TRUE(uploads_.Delete(kOwner, file.id()).ok());
  EXPECT_EQ(Entries(), 0);
  EXPECT_EQ(ReasonOf(uploads_.Delete(kOwner, file.id())), "FILE_NOT_FOUND");
}

// A job that is about to be made has asked for it: neither a row nor the index says so yet.
TEST_F(UploadsTest, WhatIsNamedIsNotDeletedByTheWay) {
  const v1::File file = Send(Header("a.jsonl"), "rows").value();
  const std::string path = uploads_.PathOf(kOwner, file.id()).value();
  std::string asked;
  const auto deleted = [&](absl::Time since, bool named) {
    return uploads_.DeleteUnless(kOwner, file.id(), since, [&](const std::string& each) {
      asked = each;
      return named;
    });
  };
  const absl::Time before = absl::Now() - absl::Minutes(1), later = absl::Now() + absl::Minutes(1);
  EXPECT_FALSE(deleted(before, false).value());  // It has come since.
  EXPECT_FALSE(deleted(later, true).value());
  EXPECT_EQ(asked, path);
  fs::last_write_time(fs::path(path).parent_path() / "file.pb",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(uploads_.PathOf(kOwner, file.id()).value(), path);
  EXPECT_EQ(uploads_.PathForJob(kOwner, file.id()).value(), path);
  EXPECT_FALSE(deleted(before, false).value());
  fs::last_write_time(fs::path(path).parent_path() / "file.pb",
                      fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_TRUE(deleted(before, false).value());
  EXPECT_EQ(ReasonOf(deleted(later, false).status()), "FILE_NOT_FOUND");
  EXPECT_EQ(ReasonOf(uploads_.PathForJob(kOwner, file.id()).status()), "FILE_NOT_FOUND");
}

TEST_F(UploadsTest, OwnersAreThoseWhoHaveSentSomething) {
  EXPECT_TRUE(uploads_.Owners().empty());
  ASSERT_TRUE(Send(Header("a.jsonl"), "rows").ok());
  EXPECT_EQ(uploads_.Owners(), std::vector<std::string>{kOwner});
}

}  // namespace
}  // namespace snug::server

// What becomes of a job's files while they are prepared, and whose may be read for him.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/data/held_files.h"
#include "server/data/prepare.h"
#include "server/data/prepared_dataset.h"
#include "server/inspect/file_access.h"
#include "server/job/errors.h"
#include "server/job/transient.h"
#include "tests/server/data/prepare_bed.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PreparedFilesTest : public PrepareBed {
 protected:
  absl::StatusOr<PreparedFolders> PrepareWhile(
      const std::function<void()>& change, const std::function<void()>& undo = [] {});
};

// Files of more rows than are held open, each of so many tokens.
void WriteManyFiles(const std::string& folder, int tokens) {
  fs::create_directories(folder);
  for (size_t i = 0; i <= HeldFiles::kMost; ++i)
    WriteTinyDataset(absl::StrCat(folder, "/", i, ".jsonl"), 1, tokens);
}

// The rows lie below the user's roots; what a link leads to beside them is not read for him, though
// the daemon may, and though nobody has looked since the link was put there.
TEST_F(PreparedFilesTest, ReadsBelowTheRootsAlone) {
  fs::create_directories(dir_ + "/root");
  fs::copy(dir_ + "/model", dir_ + "/root/model");
  WriteManyFiles(dir_ + "/root/real", 5);
  WriteManyFiles(dir_ + "/secret", 7);
  fs::create_directory_symlink("real", dir_ + "/root/data");
  spec_.set_dataset(dir_ + "/root/data");
  Preparer preparer = With();
  const FileAccess access({.of_tenants = {{"blue", {dir_ + "/root"}}}});
  const Preparer::Progress progress = {.reach = access.ReachOf({.tenant = "blue"})};
  const auto prepare = [&] { return preparer.Prepare(spec_, dir_ + "/root/model", progress); };
  const absl::StatusOr<PreparedFolders> below = prepare();
  ASSERT_TRUE(below.ok()) << below.status();
  EXPECT_EQ(ReadSummary(below->train)->tokens(), 5 * 65);

  fs::remove(dir_ + "/root/data");
  fs::create_directory_symlink("../secret", dir_ + "/root/data");
  const absl::Status beside = prepare().status();
  EXPECT_EQ(ReasonOf(beside), "BAD_DATASET");
  EXPECT_THAT(std::string(beside.message()), HasSubstr("does not open for the job's owner"));
  const absl::Status preview =
      preparer.Preview(spec_, {.model_dir = dir_ + "/root/model", .rows = 3}, progress).status();
  EXPECT_EQ(ReasonOf(preview), "BAD_DATASET");
  EXPECT_THAT(std::string(preview.message()), HasSubstr("does not open for the job's owner"));
  ASSERT_TRUE(preparer.Prepare(spec_, dir_ + "/root/model", {}).ok());  // Of the daemon's own user.
}

// A link of his leads beside the roots: to a folder with a file, a folder without, a file, nothing.
TEST_F(PreparedFilesTest, RefusalsDoNotTellWhatIsThere) {
  fs::create_directories(dir_ + "/root");
  fs::copy(dir_ + "/model", dir_ + "/root/model");
  WriteTinyDataset(dir_ + "/root/train.jsonl", 3, 5);
  fs::create_directories(dir_ + "/secret/full");
  fs::create_directories(dir_ + "/secret/bare");
  WriteText(dir_ + "/secret/full/there.jinja", "{{ secret }}");
  spec_.set_model(dir_ + "/root/model");
  spec_.set_dataset(dir_ + "/root/train.jsonl");
  Preparer preparer = With();
  const FileAccess access({.of_tenants = {{"blue", {dir_ + "/root"}}}});
  const Preparer::Progress progress = {.reach = access.ReachOf({.tenant = "blue"})};
  const auto locate = [&] { return preparer.Locate(spec_, spec_.model(), progress).status(); };
  EXPECT_TRUE(locate().ok()) << locate();
  std::set<std::string> said;
  for (const char* name : {"full", "bare", "full/there.jinja", "missing"}) {
    const std::string link = dir_ + "/root/model/additional_chat_templates";
    fs::remove(link);
    fs::create_symlink(dir_ + "/secret/" + name, link);
    EXPECT_EQ(ReasonOf(locate()), "BAD_MODEL") << name;
    said.insert(std::string(locate().message()));
  }
  EXPECT_THAT(said, testing::ElementsAre(HasSubstr("does not open for the job's owner")));
}

// What may not be opened for him is said without a word on what is there.
TEST_F(PreparedFilesTest, WhatItsOwnerMayNotOpenIsNotHashed) {
  const std::string model = dir_ + "/model";
  for (const auto& [place, reason] : {std::pair(dir_ + "/train.jsonl", "BAD_DATASET"),
                                      std::pair(model + "/config.json", "BAD_MODEL")}) {
    const Reach reach = {.roots = std::vector<std::string>{dir_ + "/root"},
                         .open = [&place](const std::string& path) {
                           if (path != place) return OpenToRead(path);
                           errno = EXDEV;
                           return -1;
                         }};
    const absl::Status status = With().Prepare(spec_, model, {.reach = reach}).status();
    EXPECT_EQ(ReasonOf(status), reason);
    EXPECT_THAT(std::string(status.message()), HasSubstr("does not open for the job's owner"));
  }
}

// Does `change` between the moment at which the dataset is opened and that at which it is read, and
// `undo` once it has been read.
absl::StatusOr<PreparedFolders> PreparedFilesTest::PrepareWhile(const std::function<void()>& change,
                                                                const std::function<void()>& undo) {
  // In the folder that the run may write in.
  const std::string begun = "$TMPDIR/begun", read = "$TMPDIR/read";
  const auto is_there = [datasets = dir_ + "/datasets"](const std::string& file) {
    std::error_code error;
    for (const auto& run : fs::directory_iterator(datasets, error))
      if (fs::exists(run.path() / fs::path(file).filename(), error)) return true;
    return false;
  };
  const auto wait = [&](const char* name) {
    return absl::StrCat("while [ ! -e ", dir_, "/", name, " ]; do sleep 0.01; done; ");
  };
  Preparer preparer =
      With(absl::StrCat("touch ", begun, "; ", wait("changed"), std::getenv("SNUG_PYTHON"), " -B ",
                        std::getenv("SNUG_PREPARE"), " \"$@\"; code=$?; touch ", read, "; ",
                        wait("undone"), "exit $code"));
  std::thread changer([&] {
    for (const auto& [file, then, done] :
         {std::tuple(begun, change, "/changed"), std::tuple(read, undo, "/undone")}) {
      for (int i = 0; i < 6000 && !is_there(file); ++i) absl::SleepFor(absl::Milliseconds(10));
      then();
      WriteText(dir_ + done, "");
    }
  });
  absl::StatusOr<PreparedFolders> folders = Prepare(preparer);
  changer.join();
  return folders;
}

TEST_F(PreparedFilesTest, AFileThatIsReplacedMeanwhileIsReadAsItWas) {
  const absl::StatusOr<PreparedFolders> folders = PrepareWhile([this] {
    fs::rename(dir_ + "/train.jsonl", dir_ + "/old.jsonl");
    WriteTinyDataset(dir_ + "/train.jsonl", 33, 5);
  });
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_EQ(ReadSummary(folders->train)->tokens(), 200);
}

TEST_F(PreparedFilesTest, AModelThatIsReplacedMeanwhileIsReadAsItWas) {
  const absl::StatusOr<PreparedFolders> folders = PrepareWhile([at = dir_ + "/model/config.json"] {
    fs::rename(at, at + ".old");
    WriteText(at, "{}");  // Of which nothing can be prepared.
  });
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_NE(With().Locate(spec_, dir_ + "/model", {})->train, folders->train);
}

// Its hash, by which others find what was prepared, is of what it was.
TEST_F(PreparedFilesTest, AFileThatIsWrittenToMeanwhileIsNotPrepared) {
  const absl::Status status =
      PrepareWhile([this] { WriteTinyDataset(dir_ + "/train.jsonl", 10, 21); }).status();
  EXPECT_EQ(ReasonOf(status), "INPUT_CHANGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("it was changed while it was prepared"));
  EXPECT_FALSE(With().Locate(spec_, dir_ + "/model", {})->ready);
}

// Too many to be held open: each is what was hashed when it is read, though what lies there before
// and afterwards is the same. Nobody else then finds these rows by the hash of those.
TEST_F(PreparedFilesTest, ManyFilesThatAreOthersForAWhileAreNotPrepared) {
  WriteManyFiles(dir_ + "/rows", 5);
  WriteManyFiles(dir_ + "/others", 7);
  spec_.set_dataset(dir_ + "/rows");
  const auto swap = [this] {
    ASSERT_EQ(renameat2(AT_FDCWD, (dir_ + "/rows").c_str(), AT_FDCWD, (dir_ + "/others").c_str(),
                        RENAME_EXCHANGE),
              0);
  };
  EXPECT_EQ(ReasonOf(PrepareWhile(swap, swap).status()), "INPUT_CHANGED");
  Preparer preparer = With();
  EXPECT_FALSE(preparer.Locate(spec_, dir_ + "/model", {})->ready);
  const absl::StatusOr<PreparedFolders> folders = Prepare(preparer);
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_EQ(ReadSummary(folders->train)->tokens(), 5 * 65);
}

// A machine that has no descriptors left is not the dataset's fault: the job waits.
TEST_F(PreparedFilesTest, AFaultOfTheMachineIsNotTheDatasets) {
  WriteManyFiles(dir_ + "/rows", 5);
  spec_.set_dataset(dir_ + "/rows");
  for (const int fault : {EMFILE, ENOMEM, ESTALE}) {
    std::map<std::string, int> opened;  // Once to be hashed, then to be read.
    const auto open = [&](const std::string& path) {
      if (!absl::EndsWith(path, "7.jsonl") || ++opened[path] < 2) return OpenToRead(path);
      errno = fault;
      return -1;
    };
    const absl::Status status =
        With().Prepare(spec_, dir_ + "/model", {.reach = {.open = open}}).status();
    EXPECT_TRUE(IsTransient(status)) << fault << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cannot open a file"));
  }
}

// Copies of the same content are that content, to who may read any file.
TEST_F(PreparedFilesTest, ManyFilesThatAreReplacedByTheirCopiesArePrepared) {
  WriteManyFiles(dir_ + "/rows", 5);
  spec_.set_dataset(dir_ + "/rows");
  const absl::StatusOr<PreparedFolders> folders = PrepareWhile([this] {
    fs::copy(dir_ + "/rows", dir_ + "/copies");
    fs::remove_all(dir_ + "/rows");
    fs::rename(dir_ + "/copies", dir_ + "/rows");
  });
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_EQ(ReadSummary(folders->train)->tokens(), 5 * 65);
}

}  // namespace
}  // namespace snug::server

#include "server/data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "server/data/prepared_dataset.h"
#include "server/job/check_spec.h"
#include "server/job/errors.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PrepareTest : public testing::Test {
 protected:
  PrepareTest() : dir_(testing::TempDir() + "/prepare-" + std::to_string(getpid())) {
    fs::remove_all(dir_);
    fs::create_directories(dir_ + "/datasets");
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 10, 20);
    spec_.set_dataset(dir_ + "/train.jsonl");
    spec_.set_method(v1::JobSpec::LORA);
    FillDefaults(spec_, 128);
  }
  ~PrepareTest() override { fs::remove_all(dir_); }

  // The real script, or a shell script in its place.
  Preparer With(const std::string& shell = "", absl::Duration timeout = absl::Minutes(1)) {
    PrepareSettings settings{.python = std::getenv("SNUG_PYTHON"),
                             .script = std::getenv("SNUG_PREPARE"),
                             .datasets_dir = dir_ + "/datasets",
                             .timeout = timeout};
    if (!shell.empty()) {
      // Called as `sh -B script ...`: -B means something else there, so a wrapper drops it.
      WriteText(dir_ + "/python", "#!/bin/sh\nshift 2\n" + shell + "\n");
      fs::permissions(dir_ + "/python", fs::perms::owner_all);
      settings.python = dir_ + "/python";
    }
    return Preparer(settings);
  }
  absl::StatusOr<PreparedFolders> Prepare(Preparer& preparer) {
    return preparer.Prepare(spec_, dir_ + "/model", {});
  }

  const std::string dir_;
  v1::JobSpec spec_;
};

TEST_F(PrepareTest, LengthsAndSummaryOfWhatWasPrepared) {
  Preparer preparer = With();
  EXPECT_FALSE(preparer.Locate(spec_, dir_ + "/model", {})->ready);
  const PreparedFolders folders = Prepare(preparer).value();
  EXPECT_TRUE(preparer.Locate(spec_, dir_ + "/model", {})->ready);
  EXPECT_EQ(ReadLengths(folders.train)->rows_of, (std::map<int64_t, int64_t>{{20, 10}}));
  EXPECT_EQ(ReadSummary(folders.train)->tokens(), 200);
  EXPECT_EQ(folders.eval, "");
}

TEST_F(PrepareTest, EvaluationSplitIsAFolderOfItsOwn) {
  spec_.set_eval_split(0.2);
  Preparer preparer = With();
  const PreparedFolders folders = Prepare(preparer).value();
  EXPECT_EQ(ReadLengths(folders.train)->rows, 8);
  EXPECT_EQ(ReadLengths(folders.eval)->rows, 2);
}

TEST_F(PrepareTest, FolderDependsOnContentAndLimitAlone) {
  Preparer preparer = With();
  const std::string model = dir_ + "/model";
  const std::string first = preparer.Locate(spec_, model, {})->train;
  fs::copy_file(dir_ + "/train.jsonl", dir_ + "/copy.jsonl");
  spec_.set_dataset(dir_ + "/copy.jsonl");
  EXPECT_EQ(preparer.Locate(spec_, model, {})->train, first);
  spec_.mutable_training()->set_max_seq_length(64);
  EXPECT_NE(preparer.Locate(spec_, model, {})->train, first);
  spec_.mutable_training()->set_max_seq_length(128);
  WriteTinyDataset(dir_ + "/copy.jsonl", 11, 20);
  EXPECT_NE(preparer.Locate(spec_, model, {})->train, first);
}

// Two jobs with one file and other options do not share what was prepared; nor does a job whose
// model has got another chat template.
TEST_F(PrepareTest, FolderDependsOnWhatIsTrained) {
  Preparer preparer = With();
  const std::string model = dir_ + "/model";
  std::set<std::string> folders = {preparer.Locate(spec_, model, {})->train};
  const v1::JobSpec plain = spec_;
  const auto with = [&](auto set) {
    spec_ = plain;
    set(spec_);
    folders.insert(preparer.Locate(spec_, model, {})->train);
  };
  with([](v1::JobSpec& spec) { spec.set_dataset_format(v1::JobSpec::TEXT); });
  with([](v1::JobSpec& spec) { spec.set_chat_template("{{ 1 }}"); });
  with([](v1::JobSpec& spec) { spec.set_completion_only_loss(false); });
  with([](v1::JobSpec& spec) { spec.set_assistant_only_loss(false); });
  with([](v1::JobSpec& spec) { spec.set_mask_history(true); });
  WriteText(model + "/chat_template.jinja", "{{ 2 }}");
  with([](v1::JobSpec&) {});
  fs::create_directories(model + "/additional_chat_templates");
  WriteText(model + "/additional_chat_templates/tool_use.jinja", "{{ 3 }}");
  with([](v1::JobSpec&) {});
  EXPECT_EQ(folders.size(), 8u);
  with([](v1::JobSpec& spec) { spec.set_completion_only_loss(true); });  // As it is by default.
  EXPECT_EQ(folders.size(), 8u);
}

// The format that the job names reaches snug-prepare: rows of tokens have no "text".
TEST_F(PrepareTest, OptionsReachTheScript) {
  spec_.set_dataset_format(v1::JobSpec::TEXT);
  Preparer preparer = With();
  const absl::Status status = Prepare(preparer).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"text\" must be a string"));
}

TEST_F(PrepareTest, BrokenLineIsNamed) {
  WriteText(dir_ + "/train.jsonl", ReadText(dir_ + "/train.jsonl") + "{broken\n");
  Preparer preparer = With();
  const absl::Status status = Prepare(preparer).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("train.jsonl:11"));
  EXPECT_EQ(ToJobError(status).field(), "spec.dataset");
}

TEST_F(PrepareTest, SecondRunIsServedFromTheCache) {
  Preparer preparer = With();
  const std::string train = Prepare(preparer)->train;
  Preparer broken = With("exit 1");
  EXPECT_EQ(Prepare(broken)->train, train);
}

TEST_F(PrepareTest, CrashOfTheScriptIsNoFaultOfTheUser) {
  Preparer preparer = With("echo boom >&2; exit 1");
  const absl::Status status = Prepare(preparer).status();
  EXPECT_EQ(ReasonOf(status), "PREPARE_FAILED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("boom"));
}

// A tokenizer that cannot get memory aborts, behind traces of its own.
TEST_F(PrepareTest, AbortForWantOfMemoryIsALimit) {
  Preparer preparer = With("echo 'memory allocation of 144 bytes failed' >&2; kill -ABRT $$");
  const absl::Status status = Prepare(preparer).status();
  EXPECT_EQ(ReasonOf(status), "PREPARE_LIMIT");
  EXPECT_EQ(ToJobError(status).field(), "spec.dataset");
  EXPECT_THAT(std::string(status.message()), HasSubstr("prepare.memory"));
  Preparer other = With("echo boom >&2; kill -ABRT $$");
  EXPECT_EQ(ReasonOf(Prepare(other).status()), "PREPARE_FAILED");
}

TEST_F(PrepareTest, AFolderThatCannotBeMadeIsSaidInWords) {
  PrepareSettings settings{.python = std::getenv("SNUG_PYTHON"),
                           .script = std::getenv("SNUG_PREPARE"),
                           .datasets_dir = dir_ + "/train.jsonl"};
  Preparer preparer(settings);
  const absl::Status status = Prepare(preparer).status();
  EXPECT_EQ(ReasonOf(status), "PREPARE_FAILED");
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("cannot write " + dir_ + "/train.jsonl/"));
}

// Files of one pattern are one dataset, read in the order of their names; a folder of the same
// files is the same rows.
TEST_F(PrepareTest, PatternsAndFoldersOfShards) {
  fs::create_directories(dir_ + "/shards");
  WriteTinyDataset(dir_ + "/shards/b.jsonl", 3, 5);
  WriteTinyDataset(dir_ + "/shards/a.jsonl", 2, 7);
  Preparer preparer = With();
  for (const char* path : {"/shards/*.jsonl", "/shards"}) {
    spec_.set_dataset(dir_ + path);
    const auto folders = Prepare(preparer);
    ASSERT_TRUE(folders.ok()) << folders.status();
    EXPECT_EQ(ReadLengths(folders->train)->rows_of, (std::map<int64_t, int64_t>{{5, 3}, {7, 2}}));
  }
  const std::string before = preparer.Locate(spec_, dir_ + "/model", {})->train;
  fs::rename(dir_ + "/shards/b.jsonl", dir_ + "/shards/validation.jsonl");  // Another split now.
  EXPECT_NE(preparer.Locate(spec_, dir_ + "/model", {})->train, before);
  spec_.set_dataset(dir_ + "/shards/*.parquet");
  EXPECT_TRUE(absl::IsNotFound(preparer.Locate(spec_, dir_ + "/model", {}).status()));
}

// A mix: two rows of the one, each row of the other three times. The options decide the folder.
TEST_F(PrepareTest, SeveralDatasetsWithWeightsAndCaps) {
  WriteTinyDataset(dir_ + "/other.jsonl", 4, 9);
  spec_.clear_dataset();
  v1::DatasetSource& first = *spec_.add_datasets();
  first.set_path(dir_ + "/train.jsonl");
  first.set_max_samples(2);
  v1::DatasetSource& second = *spec_.add_datasets();
  second.set_path(dir_ + "/other.jsonl");
  second.set_weight(3.0);
  Preparer preparer = With();
  const auto folders = Prepare(preparer);
  ASSERT_TRUE(folders.ok()) << folders.status();
  EXPECT_EQ(ReadLengths(folders->train)->rows_of, (std::map<int64_t, int64_t>{{9, 12}, {20, 2}}));
  spec_.mutable_datasets(1)->set_weight(2.0);
  EXPECT_NE(preparer.Locate(spec_, dir_ + "/model", {})->train, folders->train);
}

// A plan asked for again does not read a large dataset again: bytes that change behind the file's
// size and time are not seen; a new time is.
TEST_F(PrepareTest, ContentIsReadOnceForAFileThatDoesNotChange) {
  Preparer preparer = With();
  const std::string file = dir_ + "/train.jsonl", text = ReadText(file);
  const auto time = fs::last_write_time(file);
  const std::string first = preparer.Locate(spec_, dir_ + "/model", {})->train;
  WriteText(file, std::string(text.size(), '\n'));
  fs::last_write_time(file, time);
  EXPECT_EQ(preparer.Locate(spec_, dir_ + "/model", {})->train, first);
  fs::last_write_time(file, time + std::chrono::milliseconds(1));
  EXPECT_NE(preparer.Locate(spec_, dir_ + "/model", {})->train, first);
}

// The tiny dataset trains every token of a row but the first. The model has no tokenizer, so the
// tokens stand there by their ids.
TEST_F(PrepareTest, PreviewKeepsNothing) {
  Preparer preparer = With();
  spec_.mutable_training()->set_max_seq_length(0);
  const auto preview = preparer.Preview(spec_, dir_ + "/model", 3);
  ASSERT_TRUE(preview.ok()) << preview.status();
  ASSERT_EQ(preview->rows_size(), 3);
  EXPECT_EQ(preview->rows(2).line(), 3);
  EXPECT_EQ(preview->rows(0).trained_tokens(), 19);
  ASSERT_EQ(preview->rows(0).segments_size(), 2);
  EXPECT_EQ(preview->rows(0).segments(1).weight(), 1.0f);
  EXPECT_THAT(preview->rows(0).segments(1).text(), testing::StartsWith(" 4 5 6 "));
  EXPECT_EQ(preview->summary().rows(), 10);
  EXPECT_TRUE(preview->whole());
  EXPECT_TRUE(fs::is_empty(dir_ + "/datasets"));
}

TEST_F(PrepareTest, TimeLimitEndsTheWholeGroup) {
  Preparer preparer = With("sleep 1000 & sleep 1000", absl::Milliseconds(200));
  EXPECT_TRUE(absl::IsDeadlineExceeded(Prepare(preparer).status()));
}

TEST_F(PrepareTest, CancelledRunEndsAndLeavesNothingReady) {
  Preparer preparer = With("sleep 1000");
  std::atomic<bool> cancelled{false};
  std::thread user([&] {
    absl::SleepFor(absl::Milliseconds(100));
    cancelled = true;
  });
  const auto folders = preparer.Prepare(spec_, dir_ + "/model", {.cancelled = &cancelled});
  user.join();
  EXPECT_TRUE(absl::IsCancelled(folders.status()));
  EXPECT_FALSE(preparer.Locate(spec_, dir_ + "/model", {})->ready);
}

TEST_F(PrepareTest, ProgressIsSaidLineByLine) {
  Preparer preparer =
      With("echo 'progress: 5 rows' >&2; sleep 0.2; echo 'progress: 9 of 18 rows' >&2; exit 1");
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  EXPECT_FALSE(preparer.Prepare(spec_, dir_ + "/model", {.say = say}).ok());
  EXPECT_THAT(said, testing::ElementsAre("its dataset is being prepared: 5 rows",
                                         "its dataset is being prepared: 9 of 18 rows"));
}

// Of a file that takes seconds to be read: when nobody waits for it any more, or not so long.
TEST_F(PrepareTest, ReadingALargeFileEndsWhenItIsNotWanted) {
  Preparer preparer = With();
  fs::resize_file(dir_ + "/train.jsonl", uint64_t{64} << 30);
  const std::atomic<bool> cancelled{true};
  const auto locate = [&](const Preparer::Progress& progress) {
    return preparer.Locate(spec_, dir_ + "/model", progress).status();
  };
  EXPECT_TRUE(absl::IsCancelled(locate({.cancelled = &cancelled})));
  EXPECT_TRUE(
      absl::IsDeadlineExceeded(locate({.read_until = absl::Now() + absl::Milliseconds(100)})));
}

TEST_F(PrepareTest, LeftoversOfAKilledDaemonAreRemoved) {
  fs::create_directories(dir_ + "/datasets/abc.part-12345678.tmp");
  fs::create_directories(dir_ + "/datasets/abc");
  With().RemoveLeftovers();
  EXPECT_FALSE(fs::exists(dir_ + "/datasets/abc.part-12345678.tmp"));
  EXPECT_TRUE(fs::exists(dir_ + "/datasets/abc"));
}

}  // namespace
}  // namespace snug::server

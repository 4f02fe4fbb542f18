#include "server/data/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/data/prepared_dataset.h"
#include "server/job/errors.h"
#include "tests/server/data/prepare_bed.h"
#include "tests/server/testing/brackets.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using PrepareTest = PrepareBed;

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
TEST_F(PrepareTest, FolderDependsOnEachFileOfTheModelThatIsRead) {
  const auto folder = [this] { return With().Locate(spec_, dir_ + "/model", {})->train; };
  std::set<std::string> folders = {folder()};
  for (const char* name : {"preprocessor_config.json", "chat_template.jinja", "tokenizer.json"}) {
    WriteText(absl::StrCat(dir_, "/model/", name), "{}");
    EXPECT_TRUE(folders.insert(folder()).second) << name;
  }
  WriteText(dir_ + "/model/README.md", "Not read.");
  EXPECT_FALSE(folders.insert(folder()).second);
}

TEST_F(PrepareTest, AModelOfTooManyTemplatesIsRefused) {
  const std::string more = dir_ + "/model/additional_chat_templates/";
  fs::create_directories(more);
  for (int i = 0; i < 100; ++i) WriteText(absl::StrCat(more, i), "");
  const absl::Status status = With().Locate(spec_, dir_ + "/model", {}).status();
  EXPECT_EQ(ReasonOf(status), "BAD_MODEL");
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 107 files, of which 64"));
}

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
  with([](v1::JobSpec& spec) { spec.set_dataset_format(v1::JobSpec::DATASET_FORMAT_TEXT); });
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
  spec_.set_dataset_format(v1::JobSpec::DATASET_FORMAT_TEXT);
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

// Its own output is read with limits, too.
TEST_F(PrepareTest, ASummaryOfBracketsIsDamage) {
  for (const std::string& path : {dir_ + "/summary.json", dir_ + "/preview"}) {
    const auto read = [&] {
      return path == dir_ + "/preview" ? ReadPreview(path).status() : ReadSummary(dir_).status();
    };
    WriteBrackets(path);
    EXPECT_TRUE(absl::IsDataLoss(read())) << read();
    WriteText(path, R"({"warnings": )" + Nested(1 << 20) + "}");
    EXPECT_TRUE(absl::IsDataLoss(read())) << read();
    EXPECT_THAT(std::string(read().message()), HasSubstr("nested deeper than"));
  }
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
  PrepareSettings settings{.confine = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-confine",
                           .python = std::getenv("SNUG_PYTHON"),
                           .script = std::getenv("SNUG_PREPARE"),
                           .datasets_dir = dir_ + "/train.jsonl"};
  Preparer preparer(settings);
  const absl::Status status = Prepare(preparer).status();
  EXPECT_EQ(ReasonOf(status), "PREPARE_FAILED");
  EXPECT_THAT(std::string(status.message()),
              testing::StartsWith("cannot write " + dir_ + "/train.jsonl/"));
}

// What it asks of the kernel beyond its files is refused, and so is a file beside its folder, where
// other datasets lie. Where the daemon is root it has none of root's rights.
TEST_F(PrepareTest, HasNoSocketsNoOtherProcessesNoMounts) {
  WriteText(dir_ + "/tries.py", R"(
import ctypes, errno, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(function, *arguments):
    ctypes.set_errno(0)
    function(*arguments)
    return ctypes.get_errno()
def raised(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0
found = {
    "tcp": call(libc.socket, socket.AF_INET, socket.SOCK_STREAM, 0),
    "unix": call(libc.socket, socket.AF_UNIX, socket.SOCK_STREAM, 0),
    "netlink": call(libc.socket, socket.AF_NETLINK, socket.SOCK_RAW, 0),
    "ptrace": call(libc.ptrace, 16, os.getppid(), 0, 0),
    "mount": call(libc.mount, b"none", b"/mnt", b"tmpfs", 0, 0),
    "unshare": call(libc.unshare, 0x10000000),
    "outside": raised(lambda: open(sys.argv[1], "w")),
    "beside": raised(lambda: open(os.path.dirname(os.environ["TMPDIR"]) + "/tried", "w")),
    "inside": raised(lambda: open(os.environ["TMPDIR"] + "/tried", "w")),
}
names = {key: errno.errorcode.get(value, "done") for key, value in found.items()}
sets = ["CapInh", "CapPrm", "CapEff", "CapAmb"] + ["CapBnd"] * (os.getuid() == 0)
status = [line.split() for line in open("/proc/self/status")]
held = {words[1] for words in status if words[0].rstrip(":") in sets}
names["capabilities"] = "none" if held == {"0" * 16} else str(held)
print(json.dumps({"reason": "TRIED", "message": json.dumps(names)}), file=sys.stderr)
sys.exit(2)
)");
  Preparer preparer =
      With(std::string(std::getenv("SNUG_PYTHON")) + " " + dir_ + "/tries.py " + dir_ + "/outside");
  const absl::Status status = Prepare(preparer).status();
  EXPECT_EQ(ReasonOf(status), "TRIED");
  const std::string said(status.message());
  const auto found = nlohmann::json::parse(said.substr(said.find('{')), nullptr, false);
  const nlohmann::json expected = {
      {"tcp", "EPERM"},   {"unix", "EPERM"},       {"netlink", "EPERM"},  {"ptrace", "EPERM"},
      {"mount", "EPERM"}, {"unshare", "EPERM"},    {"outside", "EACCES"}, {"beside", "EACCES"},
      {"inside", "done"}, {"capabilities", "none"}};
  EXPECT_EQ(found, expected) << said;
}

// A hash that is remembered is not that of another content of the same length and time.
TEST_F(PrepareTest, ATimeThatIsSetBackDeceivesNobody) {
  Preparer preparer = With();
  const std::string path = dir_ + "/train.jsonl", model = dir_ + "/model";
  const auto written = fs::last_write_time(path);
  const std::string before = preparer.Locate(spec_, model, {})->train;
  std::string text = ReadText(path);
  text[text.find("[3") + 1] = '9';
  WriteText(path, text);
  fs::last_write_time(path, written);
  EXPECT_NE(preparer.Locate(spec_, model, {})->train, before);
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

// A plan asked for again does not read a large dataset again: no byte is read within no time.
TEST_F(PrepareTest, ContentIsReadOnceForAFileThatDoesNotChange) {
  Preparer preparer = With();
  const std::string file = dir_ + "/train.jsonl";
  const Preparer::Progress at_once = {.read_until = absl::InfinitePast()};
  const auto locate = [&] { return preparer.Locate(spec_, dir_ + "/model", at_once).status(); };
  EXPECT_TRUE(absl::IsDeadlineExceeded(locate()));
  ASSERT_TRUE(preparer.Locate(spec_, dir_ + "/model", {}).ok());
  EXPECT_TRUE(locate().ok()) << locate();
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::milliseconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(locate()));
}

// The tiny dataset trains every token of a row but the first. The model has no tokenizer, so the
// tokens stand there by their ids.
TEST_F(PrepareTest, PreviewKeepsNothing) {
  Preparer preparer = With();
  spec_.mutable_training()->set_max_seq_length(0);
  const auto preview = preparer.Preview(spec_, {.model_dir = dir_ + "/model", .rows = 3}, {});
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
  EXPECT_EQ(ReasonOf(Prepare(preparer).status()), "PREPARE_LIMIT");
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

// A message that ends within a character can be kept in the job's record, and so can progress.
TEST_F(PrepareTest, WhatIsNoTextIsReplaced) {
  Preparer preparer = With("printf 'progress: \\303\\nhalf \\303' >&2; exit 1");
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  const absl::Status status = preparer.Prepare(spec_, dir_ + "/model", {.say = say}).status();
  EXPECT_THAT(said, testing::ElementsAre("its dataset is being prepared: \xEF\xBF\xBD"));
  const v1::Error error = ToJobError(status);
  EXPECT_THAT(error.message(), testing::EndsWith("exit code 1: half \xEF\xBF\xBD"));
  v1::Error record;
  EXPECT_TRUE(record.ParseFromString(error.SerializeAsString()));
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

// Said at a daemon's start, and not by the first job that fails.
TEST_F(PrepareTest, WhatIsMissingIsNamed) {
  const auto missing = [](const std::string& python, const std::string& script) {
    return Preparer({.confine = "", .python = python, .script = script, .datasets_dir = ""})
        .Missing();
  };
  const std::string script = dir_ + "/train.jsonl";
  EXPECT_EQ(With().Missing(), "");
  EXPECT_EQ(missing("sh", script), "");
  EXPECT_EQ(missing("sh", dir_ + "/none.py"),
            absl::StrCat("the script of snug-prepare, ", dir_,
                         "/none.py, cannot be read: No such file or directory; the environment's "
                         "SNUG_PREPARE names another one"));
  for (const std::string& python : {dir_ + "/python", script, std::string("no-python")})
    EXPECT_EQ(missing(python, script),
              absl::StrCat("the Python of snug-prepare, ", python,
                           ", cannot be started; the setting python names another one"));
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

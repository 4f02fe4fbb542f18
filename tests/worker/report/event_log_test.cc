#include "worker/report/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tensorboard/event.pb.h"
#include "tests/worker/checkpoint/testbed.h"
#include "worker/report/crc32c.h"

namespace snug::report {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kFrame = 16;  // Bytes of a record beside its event.

// Its events, by the length of each alone: their checksums are compared elsewhere.
std::vector<tensorboard::Event> Events(const std::string& path) {
  const std::string content = ReadText(path);
  std::vector<tensorboard::Event> events;
  for (size_t at = 0; at < content.size();) {
    const size_t bytes = static_cast<unsigned char>(content[at]) +
                         256u * static_cast<unsigned char>(content[at + 1]);
    EXPECT_TRUE(events.emplace_back().ParseFromString(content.substr(at + 12, bytes)));
    at += bytes + kFrame;
  }
  return events;
}

// "3 train/loss=2.5 ..." of each event behind the first.
std::vector<std::string> Shown(const std::string& path) {
  std::vector<std::string> lines;
  for (const tensorboard::Event& event : Events(path)) {
    if (event.has_file_version()) continue;
    lines.push_back(absl::StrCat(event.step()));
    for (const auto& value : event.summary().value())
      absl::StrAppend(&lines.back(), " ", value.tag(), "=", value.simple_value());
  }
  return lines;
}

void Add(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

// RFC 3720, appendix B.4.
TEST(Crc32cTest, IsThatOfTheStandard) {
  std::string up, down;
  for (char byte = 0; byte < 32; ++byte) up.push_back(byte);
  down.assign(up.rbegin(), up.rend());
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c(up), 0x46dd794eu);
  EXPECT_EQ(Crc32c(down), 0x113fdb5cu);
}

// The bytes are those of TensorBoard's own RecordWriter, of an Event with these values. A value of
// 0 is there as well.
TEST(EventLogTest, ARecordIsTensorBoardsToTheByte) {
  const TempFolder folder;
  const std::string metrics = folder / "metrics.jsonl", path = folder / "events";
  WriteText(metrics,
            "{\"loss\":2.5,\"grad_norm\":0.0,\"learning_rate\":0.0002,\"global_step\":3,"
            "\"time\":1700000000.25}\n");
  SNUG_ASSERT_OK(EventLog::Create(path, metrics));
  EXPECT_EQ(Events(path).front().file_version(), "brain.Event:2");
  const std::string content = ReadText(path);
  const size_t first = static_cast<unsigned char>(content[0]) + kFrame;
  EXPECT_EQ(absl::BytesToHexString(content.substr(first)),
            "54000000000000005f5145870900001040fc54d94110032a470a110a0a747261696e2f6c6f7373150000"
            "20400a160a0f747261696e2f677261645f6e6f726d15000000000a1a0a13747261696e2f6c6561726e69"
            "6e675f726174651517b751394f32a44b");
}

// It begins with the lines that are there, as those of an attempt before, and goes on with what
// comes; a line that is not whole yet is waited for.
TEST(EventLogTest, FollowsTheMetrics) {
  const TempFolder folder;
  const std::string metrics = folder / "metrics.jsonl", path = folder / "events";
  WriteText(metrics, "{\"loss\":4,\"epoch\":0.5,\"global_step\":1,\"time\":1}\n");
  absl::StatusOr<EventLog> log = EventLog::Create(path, metrics);
  SNUG_ASSERT_OK(log);
  EXPECT_THAT(Shown(path), ElementsAre("1 train/loss=4 train/epoch=0.5"));
  Add(metrics, "{\"loss\":3,\"global_step\":2}\n{\"eval_loss\":2,\"global_step\":2,");
  SNUG_ASSERT_OK(log->Follow());
  EXPECT_THAT(Shown(path), ElementsAre("1 train/loss=4 train/epoch=0.5", "2 train/loss=3"));
  Add(metrics, "\"epoch\":0.5,\"name\":\"x\"}\n");
  SNUG_ASSERT_OK(log->Follow());
  SNUG_ASSERT_OK(log->Follow());
  EXPECT_THAT(Shown(path),
              ElementsAre("1 train/loss=4 train/epoch=0.5", "2 train/loss=3", "2 eval/loss=2"));
}

// Lines longer than a piece of the file that is read at once, and many of them.
TEST(EventLogTest, BeginsWithAnyNumberOfLines) {
  const TempFolder folder;
  const std::string metrics = folder / "metrics.jsonl", path = folder / "events";
  std::string lines;
  for (int step = 1; step <= 30'000; ++step)
    absl::StrAppend(&lines, "{\"loss\":", step, ",\"global_step\":", step, ",\"of\":\"",
                    std::string(step % 97, 'x'), "\"}\n");
  WriteText(metrics, lines);
  SNUG_ASSERT_OK(EventLog::Create(path, metrics));
  const std::vector<std::string> shown = Shown(path);
  ASSERT_EQ(shown.size(), 30'000u);
  for (const int step : {1, 17'000, 30'000})
    EXPECT_EQ(shown[step - 1], absl::StrCat(step, " train/loss=", step));
}

TEST(EventLogTest, RefusesWhatIsThereAndWhatIsBroken) {
  const TempFolder folder;
  const std::string metrics = folder / "metrics.jsonl", path = folder / "events";
  WriteText(metrics, "");
  WriteText(path, "x");
  EXPECT_THAT(std::string(EventLog::Create(path, metrics).status().message()),
              HasSubstr("cannot create"));
  EXPECT_EQ(ReadText(path), "x");
  absl::StatusOr<EventLog> log = EventLog::Create(folder / "other", metrics);
  SNUG_ASSERT_OK(log);
  Add(metrics, "{\"loss\":3,\"global_step\":1}\nnot of it\n");
  EXPECT_EQ(log->Follow().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Shown(folder / "other"), ElementsAre("1 train/loss=3"));
  WriteText(metrics, std::string(100'000, '[') + "\n");
  EXPECT_EQ(EventLog::Create(folder / "deep", metrics).status().code(),
            absl::StatusCode::kDataLoss);
}

// A time that is no number is left out, as other values of another kind are.
TEST(EventLogTest, ValuesThatAreNoNumbersAreLeftOut) {
  const TempFolder folder;
  const std::string metrics = folder / "metrics.jsonl", path = folder / "events";
  WriteText(metrics, "{\"loss\":3,\"grad_norm\":[1],\"global_step\":1,\"time\":\"noon\"}\n");
  SNUG_ASSERT_OK(EventLog::Create(path, metrics));
  EXPECT_THAT(Shown(path), ElementsAre("1 train/loss=3"));
  EXPECT_EQ(Events(path).back().wall_time(), 0.0);
}

}  // namespace
}  // namespace snug::report

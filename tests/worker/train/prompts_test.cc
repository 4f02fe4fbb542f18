#include "worker/train/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/checkpoint/testbed.h"
#include "worker/train/samples_log.h"
#include "worker/train/text_pieces.h"

namespace snug::train {
namespace {

using checkpoint::ReadText;
using checkpoint::TempFolder;
using checkpoint::WriteText;
using testing::HasSubstr;

// Four tokens: "ab", a byte of a character, the other byte of it, a special one.
constexpr char kGood[] =
    R"({"prompts": [{"text": "hi", "ids": [1, 2, 0]}, {"text": "x", "ids": [3]}],)"
    R"( "stop_ids": [3, 99], "token_bytes": "\u0000\u0002ab\u0000\u0001\u00c3\u0000\u0001\u00a9)"
    R"(\u0000\u0000"})";

TEST(PromptsTest, ReadsIdsStopsAndWhatTokensStandFor) {
  const TempFolder folder;
  WriteText(folder / "prompts.json", kGood);
  const auto prompts = Prompts::Read(folder / "prompts.json", 4);
  SNUG_ASSERT_OK(prompts);
  ASSERT_EQ(prompts->prompts().size(), 2u);
  EXPECT_EQ(prompts->prompts()[0].text, "hi");
  EXPECT_EQ(prompts->longest(), 3);
  EXPECT_TRUE(prompts->Stops(3));
  EXPECT_FALSE(prompts->Stops(0));
  const std::vector<int32_t> ids = {0, 1, 2, 3};
  EXPECT_EQ(prompts->TextOf(ids, /*begins=*/true), "ab\xc3\xa9");
}

// A target is a text of its own; sentencepiece's tokens have a space before each word.
TEST(PromptsTest, ATextBeginsWithoutTheSpaceThatItsTokenizerDrops) {
  const TempFolder folder;
  const std::string file = folder / "prompts.json";
  const std::vector<int32_t> ids = {0, 0};
  for (const bool drops : {false, true}) {
    WriteText(file,
              absl::StrCat(R"({"prompts": [], "stop_ids": [], "drops_space": )",
                           drops ? "true" : "false", R"(, "token_bytes": "\u0000\u0002 a"})"));
    const auto prompts = Prompts::Read(file, 1);
    SNUG_ASSERT_OK(prompts);
    EXPECT_EQ(prompts->TextOf(ids, /*begins=*/true), drops ? "a a" : " a a");
    EXPECT_EQ(prompts->TextOf(ids, /*begins=*/false), " a a");
  }
}

TEST(PromptsTest, RefusesWhatDoesNotFitTheModel) {
  const TempFolder folder;
  WriteText(folder / "prompts.json", kGood);
  for (int64_t vocabulary : {3, 5})
    EXPECT_EQ(Prompts::Read(folder / "prompts.json", vocabulary).status().code(),
              absl::StatusCode::kDataLoss);
  WriteText(folder / "prompts.json", R"({"prompts": [{"text": "x", "ids": []}], "stop_ids": [],)"
                                     R"( "token_bytes": ""})");
  EXPECT_THAT(std::string(Prompts::Read(folder / "prompts.json", 4).status().message()),
              HasSubstr("without text or ids"));
}

// A token ends where it likes; what is shown are whole characters.
TEST(TextPiecesTest, ACharacterIsShownOnceItIsWhole) {
  TextPieces pieces;
  EXPECT_EQ(pieces.Add("a\xF0\x9F"), "a");
  EXPECT_EQ(pieces.Add("\x98"), "");
  EXPECT_EQ(pieces.Add("\x80!\xC3"), "\xF0\x9F\x98\x80!");
  EXPECT_EQ(pieces.Add("\xA9"), "\xC3\xA9");
  EXPECT_EQ(pieces.End(), "");
}

// One U+FFFD for each longest beginning of a character, as decoders of UTF-8 write them.
TEST(TextPiecesTest, BytesThatAreNoCharacterBecomeReplacements) {
  TextPieces pieces;
  EXPECT_EQ(pieces.Add("\x80"
                       "b\xE4\xB8"
                       "c"),
            "\xEF\xBF\xBD"
            "b\xEF\xBF\xBD"
            "c");
  EXPECT_EQ(pieces.Add("\xE0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(pieces.Add("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(pieces.Add("\xE4\xB8"), "");
  EXPECT_EQ(pieces.End(), "\xEF\xBF\xBD");
  EXPECT_EQ(pieces.End(), "");
}

TEST(SamplesLogTest, AResumedLogHasTheLinesUpToItsStep) {
  const TempFolder folder;
  const std::string first = folder / "one.jsonl", second = folder / "two.jsonl";
  SNUG_ASSERT_OK(BeginSamples(first, "", 0));
  for (int64_t step : {2, 4, 6})
    SNUG_ASSERT_OK(AppendSamples(first, {{step, "p", "a\nb", {1, 2}}, {step, "q", "\xc3", {3}}}));
  const std::string whole = ReadText(first);
  EXPECT_THAT(whole,
              testing::StartsWith(R"({"step":2,"prompt":"p","completion":"a\nb","tokens":[1,2]})"));
  WriteText(first, whole + "{\"step\": 8, \"pro");
  SNUG_ASSERT_OK(BeginSamples(second, first, 4));
  EXPECT_EQ(ReadText(second), whole.substr(0, whole.find(R"({"step":6)")));
  EXPECT_EQ(Shown({4, "p\"", "a\nb", {}}), R"(sample after step 4: "p\"" -> "a\nb")");
}

// A line that nests deeper than any of the log is none of it, and so is one that says a step twice.
TEST(SamplesLogTest, LinesOfAnotherKindAreRefused) {
  const TempFolder folder;
  const std::string first = folder / "one.jsonl", second = folder / "two.jsonl";
  for (const std::string& line :
       {std::string(100'000, '['), "{\"step\":2,\"tokens\":" + std::string(100'000, '['),
        std::string(R"({"step":2,"step":3})"), std::string(R"({"step":"2"})")}) {
    WriteText(first, line + "\n");
    const absl::Status status = BeginSamples(second, first, 4);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(status.message(), first + ": not a line of samples");
  }
}

}  // namespace
}  // namespace snug::train

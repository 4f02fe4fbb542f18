// Datasets as snug-prepare writes them, and as another program may.
#include "worker/train/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/worker/program/safetensors_files.h"

namespace snug::train {
namespace {

using program::FreshDirectory;
using program::LittleEndian64;
using program::WriteFile;
using testing::HasSubstr;

// Two rows of one token each, from lines 3 and 8 of the file. The data: offsets, lines, ids,
// weights.
class DatasetTest : public ::testing::Test {
 protected:
  static std::string Write(const std::string& lines_entry) {
    const std::string header =
        R"({"row_offsets":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)" + lines_entry +
        R"("input_ids":{"dtype":"I32","shape":[2],"data_offsets":[40,48]},)"
        R"("loss_weights":{"dtype":"F32","shape":[2],"data_offsets":[48,56]}})";
    return WriteTensors(header, {0, 1, 2, 3, 8, 0, 0});
  }
  // The same rows, made of sources of three tokens together; `numbers`: where these begin and end,
  // then their ids, two in each number.
  static std::string WriteSources(const std::vector<uint64_t>& numbers) {
    std::vector<uint64_t> data = {0, 1, 2, 0, 0};
    data.insert(data.end(), numbers.begin(), numbers.end());
    return WriteTensors(R"({"row_offsets":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},)"
                        R"("input_ids":{"dtype":"I32","shape":[2],"data_offsets":[24,32]},)"
                        R"("loss_weights":{"dtype":"F32","shape":[2],"data_offsets":[32,40]},)"
                        R"("source_offsets":{"dtype":"I64","shape":[3],"data_offsets":[40,64]},)"
                        R"("source_ids":{"dtype":"I32","shape":[3],"data_offsets":[64,76]},)"
                        R"("other":{"dtype":"I32","shape":[1],"data_offsets":[76,80]}})",
                        data);
  }

  static std::string WriteTensors(const std::string& header, const std::vector<uint64_t>& numbers) {
    const std::filesystem::path folder = FreshDirectory();
    std::string data;
    for (const uint64_t number : numbers) data += LittleEndian64(number);
    const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
    WriteFile(folder / "dataset.safetensors", LittleEndian64(padded.size()) + padded + data);
    WriteFile(folder / "dataset.json", R"({"sha256": "abc"})");
    return folder.string();
  }
};

TEST_F(DatasetTest, ARowIsNamedByItsLineInTheUsersFile) {
  const auto dataset =
      Dataset::Open(Write(R"("source_line":{"dtype":"I64","shape":[2],"data_offsets":[24,40]},)"),
                    10, "train.jsonl");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->NameOf(0), "train.jsonl:3");
  EXPECT_EQ(dataset->NameOf(1), "train.jsonl:8");
  EXPECT_EQ(dataset->sha256(), "abc");
}

TEST_F(DatasetTest, WithoutLinesARowHasItsNumber) {
  const auto dataset =
      Dataset::Open(Write(R"("other":{"dtype":"I64","shape":[2],"data_offsets":[24,40]},)"), 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->NameOf(1), "1");
  EXPECT_FALSE(dataset->has_source_lines());
}

TEST_F(DatasetTest, LinesThatDoNotBelongToTheRowsAreRefused) {
  const auto dataset =
      Dataset::Open(Write(R"("source_line":{"dtype":"I64","shape":[1],"data_offsets":[24,32]},)"
                          R"("other":{"dtype":"I64","shape":[1],"data_offsets":[32,40]},)"),
                    10);
  EXPECT_TRUE(absl::IsInvalidArgument(dataset.status())) << dataset.status();
}

TEST_F(DatasetTest, SourcesHaveLengthsOfTheirOwn) {
  constexpr uint64_t kTwoIds = 4 + (uint64_t{5} << 32), kThird = 6;
  const auto dataset = Dataset::Open(WriteSources({0, 1, 3, kTwoIds, kThird}), 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE(dataset->has_sources());
  EXPECT_EQ(dataset->source_tokens(0), 1);
  EXPECT_EQ(dataset->source_tokens(1), 2);
  EXPECT_EQ(dataset->source_ids(0)[0], 4);
  EXPECT_EQ(dataset->source_ids(1)[1], 6);
  EXPECT_EQ(dataset->source_lengths().longest(), 2);
  // An id beyond the vocabulary, an empty source, one that goes back, one that ends elsewhere.
  for (const std::vector<uint64_t>& bad : {std::vector<uint64_t>{0, 1, 3, kTwoIds, 10},
                                           {0, 3, 3, kTwoIds, kThird},
                                           {0, 7, 3, kTwoIds, kThird},
                                           {0, 1, 2, kTwoIds, kThird}}) {
    const auto refused = Dataset::Open(WriteSources(bad), 10);
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  }
}

// Rows whose lengths add up to all tokens only if a sum goes round 64 bits: a step would read far
// behind the file.
TEST_F(DatasetTest, OffsetsThatGoRoundAreRefused) {
  constexpr uint64_t kQuarter = uint64_t{1} << 62;
  const std::string path =
      WriteTensors(R"({"row_offsets":{"dtype":"I64","shape":[5],"data_offsets":[0,40]},)"
                   R"("input_ids":{"dtype":"I32","shape":[2],"data_offsets":[40,48]},)"
                   R"("loss_weights":{"dtype":"F32","shape":[2],"data_offsets":[48,56]}})",
                   {0, kQuarter, 2 * kQuarter - 1, 3 * kQuarter, 2, 0, 0});
  EXPECT_THAT(std::string(Dataset::Open(path, 10).status().message()), HasSubstr("row 2 is empty"));
}

// snug-prepare writes the sources' offsets behind tensors of as many I32 as there are rows.
TEST_F(DatasetTest, SourcesMayBeginAtAnyFourthByte) {
  const auto dataset = Dataset::Open(
      WriteTensors(R"({"row_offsets":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                   R"("input_ids":{"dtype":"I32","shape":[1],"data_offsets":[16,20]},)"
                   R"("loss_weights":{"dtype":"F32","shape":[1],"data_offsets":[20,24]},)"
                   R"("source_file":{"dtype":"I32","shape":[1],"data_offsets":[24,28]},)"
                   R"("source_offsets":{"dtype":"I64","shape":[2],"data_offsets":[28,44]},)"
                   R"("source_ids":{"dtype":"I32","shape":[1],"data_offsets":[44,48]}})",
                   {0, 1, 0, 0, uint64_t{1} << 32, uint64_t{7} << 32}),
      10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->source_tokens(0), 1);
  EXPECT_EQ(dataset->source_ids(0)[0], 7);
}

// Other tensors lie where their values can be read in place.
TEST_F(DatasetTest, ValuesAtOddBytesAreRefused) {
  const std::string path =
      WriteTensors(R"({"other":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
                   R"("row_offsets":{"dtype":"I64","shape":[2],"data_offsets":[4,20]},)"
                   R"("input_ids":{"dtype":"I32","shape":[1],"data_offsets":[20,24]},)"
                   R"("loss_weights":{"dtype":"F32","shape":[1],"data_offsets":[24,28]},)"
                   R"("more":{"dtype":"I32","shape":[1],"data_offsets":[28,32]}})",
                   {0, uint64_t{1} << 32, 0, 0});
  EXPECT_THAT(std::string(Dataset::Open(path, 10).status().message()),
              HasSubstr("a tensor of type I64 begins at byte"));
}

// An image without a channel has lines of no byte.
TEST_F(DatasetTest, ImagesWithoutAChannelAreRefused) {
  const std::string path =
      WriteTensors(R"({"row_offsets":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                   R"("original_offsets":{"dtype":"I64","shape":[2],"data_offsets":[16,32]},)"
                   R"("original_widths":{"dtype":"I32","shape":[1],"data_offsets":[32,36]},)"
                   R"("input_ids":{"dtype":"I32","shape":[1],"data_offsets":[36,40]},)"
                   R"("loss_weights":{"dtype":"F32","shape":[1],"data_offsets":[40,44]},)"
                   R"("other":{"dtype":"F32","shape":[1],"data_offsets":[44,48]},)"
                   R"("pixel_values":{"dtype":"F32","shape":[0,256],"data_offsets":[48,48]},)"
                   R"("pixels":{"dtype":"U8","shape":[1,2,2,0],"data_offsets":[48,48]},)"
                   R"("originals":{"dtype":"U8","shape":[0],"data_offsets":[48,48]}})",
                   {0, 1, 0, 0, 1, 0});
  EXPECT_THAT(std::string(Dataset::Open(path, 10).status().message()),
              HasSubstr("images need pixels U8 [1, size, size, channels]"));
}

// What dataset.json says is read within limits; a file that is not there says nothing.
TEST_F(DatasetTest, WhatIsSaidOfItIsReadWithinLimits) {
  const std::string folder =
      Write(R"("other":{"dtype":"I64","shape":[2],"data_offsets":[24,40]},)");
  WriteFile(folder + "/dataset.json", "{\"mask_token_id\": " + std::string(100'000, '['));
  EXPECT_THAT(std::string(Dataset::Open(folder, 10).status().message()),
              HasSubstr("dataset.json: \"mask_token_id\": nested deeper than 4 levels"));
  std::filesystem::remove(folder + "/dataset.json");
  const auto dataset = Dataset::Open(folder, 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->sha256(), "");
}

// kB of a mapped file that are this process's memory.
int64_t ResidentKb(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  bool found = false;
  for (std::string line; std::getline(maps, line);) {
    found = found || line.ends_with(path);
    if (found && line.starts_with("Rss:")) return std::stoll(line.substr(4));
  }
  return -1;
}

// All of it is read when it is opened; a long dataset is not kept for that.
TEST_F(DatasetTest, AnOpenDatasetTakesNoMemoryForItsTokens) {
  const std::filesystem::path folder = FreshDirectory();
  constexpr int64_t kTokens = 1 << 20;
  const std::string shape = std::to_string(kTokens), end = std::to_string(16 + 8 * kTokens);
  const std::string header = R"({"row_offsets":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                             R"("input_ids":{"dtype":"I32","shape":[)" +
                             shape + R"(],"data_offsets":[16,)" + std::to_string(16 + 4 * kTokens) +
                             R"(]},"loss_weights":{"dtype":"F32","shape":[)" + shape +
                             R"(],"data_offsets":[)" + std::to_string(16 + 4 * kTokens) + "," +
                             end + "]}}";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string path = folder / "dataset.safetensors";
  WriteFile(path, LittleEndian64(padded.size()) + padded + LittleEndian64(0) +
                      LittleEndian64(kTokens) + std::string(8 * kTokens, '\0'));
  const auto dataset = Dataset::Open(folder.string(), 10);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const int64_t resident = ResidentKb(path);
  EXPECT_GE(resident, 0);
  EXPECT_LT(resident, 1024);  // Of 8 MiB.
}

}  // namespace
}  // namespace snug::train

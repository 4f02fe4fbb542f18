#include "worker/program/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <random>
#include <string>
#include <vector>

#include "tests/worker/program/safetensors_files.h"

namespace snug::program {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOneTensor[] = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

std::string Refusal(const std::string& path) {
  return std::string(ReadSafetensorsHeader(path).status().message());
}

TEST(SafetensorsTest, GivesPlacesFromTheFilesStart) {
  const std::string header = R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
                             R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}  )";
  const std::string path = WriteFile(FreshDirectory() / "x", Safetensors(header, 20));
  const absl::StatusOr<TensorIndex> index = ReadSafetensorsHeader(path);
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ(index->size(), 2u);
  const TensorEntry& b = index->at("b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.file, path);
  EXPECT_EQ(b.begin, static_cast<int64_t>(8 + header.size() + 8));
  EXPECT_EQ(b.bytes, 12);
  EXPECT_EQ(index->at("a").begin, static_cast<int64_t>(8 + header.size()));
}

// Its first two bytes are 0x80 0x02, as of a pickle.
TEST(SafetensorsTest, AHeaderOf640BytesIsNotAPickle) {
  std::string header = kOneTensor;
  header.resize(640, ' ');
  const std::string path = WriteFile(FreshDirectory() / "x", Safetensors(header, 8));
  EXPECT_TRUE(ReadSafetensorsHeader(path).ok()) << ReadSafetensorsHeader(path).status();
}

// F-46
TEST(SafetensorsTest, RefusesLengthsThatCannotBe) {
  const std::filesystem::path dir = FreshDirectory();
  const std::string good = Safetensors(kOneTensor, 8);
  const std::string rest = good.substr(8);
  EXPECT_EQ(Refusal(WriteFile(dir / "good", good)), "");
  EXPECT_THAT(Refusal(WriteFile(dir / "empty", "")), HasSubstr("0 bytes; at least 10"));
  EXPECT_THAT(Refusal(WriteFile(dir / "nine", Safetensors("{", 0))),
              HasSubstr("9 bytes; at least"));
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, uint64_t{rest.size() + 1},
                                uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 7}) {
    EXPECT_THAT(Refusal(WriteFile(dir / "wrong", LittleEndian64(length) + rest)),
                AllOf(HasSubstr("not a safetensors file"), HasSubstr(std::to_string(length))));
  }
  // One byte off: the header ends in the data, or before its end.
  EXPECT_NE(Refusal(WriteFile(dir / "long", LittleEndian64(rest.size() - 7) + rest)), "");
  EXPECT_NE(Refusal(WriteFile(dir / "short", LittleEndian64(rest.size() - 9) + rest)), "");
}

// F-46
TEST(SafetensorsTest, RefusesOverlapGapAndTail) {
  const std::filesystem::path dir = FreshDirectory();
  const auto two = [](int begin, int end) {
    return R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[)" +
           std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(end) + "]}}";
  };
  EXPECT_EQ(Refusal(WriteFile(dir / "x", Safetensors(two(8, 12), 12))), "");
  EXPECT_THAT(Refusal(WriteFile(dir / "x", Safetensors(two(4, 12), 12))), HasSubstr("inside the"));
  EXPECT_THAT(Refusal(WriteFile(dir / "x", Safetensors(two(9, 12), 12))),
              HasSubstr("behind a gap"));
  EXPECT_THAT(Refusal(WriteFile(dir / "x", Safetensors(two(8, 12), 13))),
              HasSubstr("the tensors take 12 bytes, the file has 13"));
  EXPECT_THAT(Refusal(WriteFile(dir / "x", Safetensors(two(8, 12), 11))), HasSubstr("has 11"));
}

struct Foreign {
  std::string content;
  std::string said;
};

// F-47: by what they contain: the name ends in .safetensors all the same.
TEST(SafetensorsTest, RefusesOtherFormatsByContent) {
  const std::string rest(1000, 'x');
  const std::vector<Foreign> cases = {
      {"\x80\x02}q" + rest, "UNSAFE_FORMAT: a pickle"},
      {"\x80\x02\x8a\x0al\xfc\x9c" + rest, "UNSAFE_FORMAT: a pickle"},
      {"\x80\x04\x95" + rest, "UNSAFE_FORMAT: a pickle"},
      {"\x80\x05N.", "UNSAFE_FORMAT: a pickle"},
      {std::string("PK\x03\x04") + rest, "UNSAFE_FORMAT: a pickle or zip"},
      {std::string("GGUF\x03\0\0\0", 8) + rest, "UNSAFE_FORMAT: a GGUF file"},
      {"\x89HDF\r\n\x1a\n" + rest, "UNSAFE_FORMAT: an HDF5 file"},
      {"\x93NUMPY\x01" + rest, "UNSAFE_FORMAT: a NumPy file"},
      {rest.substr(0, 257) + "ustar" + rest, "UNSAFE_FORMAT: a tar archive"},
      {"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer"},
      {"(dp0\nS'a'\n" + rest, "not a safetensors file: a header of"},
      {"<!DOCTYPE html>" + rest, "not a safetensors file: a header of"},
  };
  const std::filesystem::path dir = FreshDirectory();
  for (const Foreign& foreign : cases) {
    const std::string path = WriteFile(dir / "model.safetensors", foreign.content);
    EXPECT_THAT(Refusal(path), AllOf(HasSubstr(path), HasSubstr(foreign.said)));
    EXPECT_EQ(ReadSafetensorsHeader(path).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(SafetensorsTest, RefusesWhatIsNoRegularFile) {
  const std::filesystem::path dir = FreshDirectory();
  EXPECT_EQ(ReadSafetensorsHeader(dir / "none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Refusal(dir), HasSubstr("not a regular file"));
  EXPECT_THAT(Refusal("/dev/zero"), HasSubstr("not a regular file"));
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(dir / "fifo"), HasSubstr("not a regular file"));
}

int64_t PeakRssBytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// F-46: sizes that a file only claims cost nothing: the files are sparse.
TEST(SafetensorsTest, RefusesHugeHeadersWithoutReadingThem) {
  const std::string path = WriteFile(FreshDirectory() / "x", LittleEndian64(500'000'000) + "{");
  std::filesystem::resize_file(path, 600'000'000);
  const int64_t before = PeakRssBytes();
  EXPECT_THAT(Refusal(path), HasSubstr("a header of 500000000 bytes; at most 25000000"));
  EXPECT_LT(PeakRssBytes() - before, int64_t{1} << 20);
}

// The largest header that is read, full of zeros behind its first byte.
TEST(SafetensorsTest, ReadsTheLargestHeaderInLittleMemory) {
  const std::string path = WriteFile(FreshDirectory() / "x", LittleEndian64(25'000'000) + "{\"");
  std::filesystem::resize_file(path, 25'000'008);
  const int64_t before = PeakRssBytes();
  EXPECT_THAT(Refusal(path), HasSubstr("the header is not { ... }"));
  EXPECT_LT(PeakRssBytes() - before, int64_t{64} << 20);
}

// F-46: whatever is changed in a good file, what is still accepted lies inside the file, end to
// end.
TEST(SafetensorsTest, NoChangeOfBytesLeadsOutOfTheFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}} )";
  const std::string good = Safetensors(header, 10);
  const std::filesystem::path dir = FreshDirectory();
  std::mt19937 random(7);
  const std::string bytes = "0123456789{}[]\",:-.eE \\u\x80\xff" + std::string(1, '\0');
  int accepted = 0;
  for (int round = 0; round < 6'000; ++round) {
    std::string changed = good;
    for (int i = 0, changes = 1 + static_cast<int>(random() % 3); i < changes; ++i) {
      changed[random() % (8 + header.size())] = bytes[random() % bytes.size()];
    }
    if (random() % 8 == 0) changed.resize(random() % changed.size());
    const absl::StatusOr<TensorIndex> index = ReadSafetensorsHeader(WriteFile(dir / "x", changed));
    if (!index.ok()) continue;
    ++accepted;
    int64_t total = 0;
    for (const auto& [name, entry] : *index) {
      ASSERT_LE(entry.begin + entry.bytes, static_cast<int64_t>(changed.size())) << changed;
      total += entry.bytes;
    }
    ASSERT_EQ(total, 10) << changed;
  }
  EXPECT_GT(accepted, 50);  // Names and metadata may change.
  EXPECT_LT(accepted, 3'000);
}

}  // namespace
}  // namespace snug::program

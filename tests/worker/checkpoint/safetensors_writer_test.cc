#include "worker/checkpoint/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>

#include "tests/worker/checkpoint/testbed.h"
#include "worker/program/files/safetensors.h"

namespace snug::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string Message(const std::vector<TensorBytes>& tensors) {
  const auto layout = LayOutSafetensors(tensors);
  EXPECT_FALSE(layout.ok());
  return std::string(layout.status().message());
}

// The whole file, literally, as the format's page describes it.
TEST(SafetensorsWriterTest, WritesTheBytesOfTheFormat) {
  const TempFolder folder;
  Tensors tensors;
  tensors.AddF32("w", {1, 2}, {1.0f, -2.0f});
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "a.safetensors", tensors.list()));
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string length(1, static_cast<char>(padded.size()));
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  EXPECT_EQ(ReadText(folder / "a.safetensors"), length + std::string(7, '\0') + padded + data);
}

// Whatever the keys' lengths, the first tensor begins at a multiple of 8.
TEST(SafetensorsWriterTest, PadsTheHeaderToEightBytes) {
  for (size_t length = 1; length <= 9; ++length) {
    Tensors tensors;
    tensors.AddF32(std::string(length, 'k'), {1}, {1.0f});
    const auto layout = LayOutSafetensors(tensors.list());
    SNUG_ASSERT_OK(layout);
    EXPECT_EQ(layout->header.size() % 8, 0u) << length;
  }
}

// An odd number of bf16 values before fp32 ones would leave these at odd places.
TEST(SafetensorsWriterTest, PutsWiderDtypesFirstThenByKey) {
  const TempFolder folder;
  Tensors tensors;
  tensors.AddBf16("a", {3}, {0x3f80, 0x4000, 0x4040});
  tensors.AddF32("c", {1}, {3.0f});
  tensors.AddF32("b", {}, {2.0f});
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "a.safetensors", tensors.list()));
  const auto index = program::ReadSafetensorsHeader(folder / "a.safetensors");
  SNUG_ASSERT_OK(index);
  const int64_t data = index->at("b").begin;
  EXPECT_EQ(index->at("c").begin, data + 4);
  EXPECT_EQ(index->at("a").begin, data + 8);
  EXPECT_EQ(index->at("a").dtype, "BF16");
  EXPECT_THAT(index->at("a").shape, ElementsAre(3));
  EXPECT_THAT(index->at("b").shape, ElementsAre());
}

// The digest is of the file as it lies on the disk; SHA-256 of a known text checks the hash itself.
TEST(SafetensorsWriterTest, GivesSizeAndHashOfWhatItWrote) {
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const TempFolder folder;
  Tensors tensors;
  tensors.AddNumbered("large", {700, 1001}, 1.0f);  // Several pieces, the last an odd one.
  const auto digest = WriteSafetensorsFile(folder / "a.safetensors", tensors.list());
  SNUG_ASSERT_OK(digest);
  const std::string text = ReadText(folder / "a.safetensors");
  EXPECT_EQ(digest->bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(digest->sha256, Sha256Hex(text));
}

TEST(SafetensorsWriterTest, NeverWritesOverAFileOrThroughALink) {
  const TempFolder folder;
  Tensors tensors;
  tensors.AddF32("w", {1}, {1.0f});
  WriteText(folder / "there", "mine");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "link");
  EXPECT_TRUE(
      absl::IsAlreadyExists(WriteSafetensorsFile(folder / "there", tensors.list()).status()));
  EXPECT_FALSE(WriteSafetensorsFile(folder / "link", tensors.list()).ok());
  EXPECT_EQ(ReadText(folder / "there"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder / "elsewhere"));
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "new", tensors.list()));
  struct stat about = {};
  ASSERT_EQ(stat((folder / "new").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600u);
}

TEST(SafetensorsWriterTest, RefusesWhatNoReaderWouldTake) {
  Tensors twice;
  twice.AddF32("w", {1}, {1.0f});
  twice.AddF32("w", {1}, {2.0f});
  EXPECT_THAT(Message(twice.list()), HasSubstr("w is given twice"));

  Tensors shape;
  shape.AddF32("w", {3}, {1.0f, 2.0f});
  EXPECT_THAT(Message(shape.list()), HasSubstr("its shape has 12 bytes, given are 8"));

  Tensors overflow;
  overflow.AddF32("w", {int64_t{1} << 40, int64_t{1} << 40}, {1.0f});
  EXPECT_THAT(Message(overflow.list()), HasSubstr("w: no shape"));

  Tensors dtype;
  dtype.AddF32("w", {1}, {1.0f});
  dtype.list()[0].dtype = "F64";
  EXPECT_THAT(Message(dtype.list()), HasSubstr("dtype F64; accepted: F32, BF16, F16, U8"));

  Tensors metadata;
  metadata.AddF32("__metadata__", {1}, {1.0f});
  EXPECT_THAT(Message(metadata.list()), HasSubstr("__metadata__"));

  Tensors utf8;
  utf8.AddF32("w\xff", {1}, {1.0f});
  EXPECT_THAT(Message(utf8.list()), HasSubstr("UTF-8"));
}

TEST(SafetensorsWriterTest, RefusesAValueThatIsNotFinite) {
  const TempFolder folder;
  Tensors tensors;
  tensors.AddF32("w", {2}, {1.0f, -std::numeric_limits<float>::infinity()});
  const absl::Status status = WriteSafetensorsFile(folder / "a", tensors.list()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("w: element 1 is NaN or infinite"));
}

}  // namespace
}  // namespace snug::checkpoint

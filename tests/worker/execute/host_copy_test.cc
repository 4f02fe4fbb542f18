// Copies in pieces to memory that the host cannot touch, against one copy to memory that it can.
#include "worker/execute/host_copy.h"

#include <cstring>

#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/hidden_device.h"
#include "tests/worker/execute/toy_run.h"

namespace snug::execute {
namespace {

struct Filled {
  std::vector<char> bytes;
  std::vector<int64_t> firsts;  // Of the pieces.
};

// Element i is i, made in the device's memory.
Filled Fill(Device& device, int64_t rows, int64_t width) {
  Filled filled;
  const auto buffer = DeviceBuffer::Allocate(device, rows * width * 4);
  EXPECT_TRUE(buffer.ok());
  const View view{buffer->data(), rows, width};
  EXPECT_TRUE(FillRows(device, view, [&](const View& part, int64_t first) {
                filled.firsts.push_back(first);
                for (int64_t i = 0; i < part.elements(); ++i)
                  part.as<float>()[i] = static_cast<float>(first * width + i);
              }).ok());
  filled.bytes = BytesOf(device, view);
  return filled;
}

// Sizes below, at and above a piece, of many rows, of one, and of rows larger than a piece.
TEST(HostCopyTest, PiecesMakeWhatOneCallMakes) {
  constexpr int64_t kFloats = kHostPieceBytes / 4;
  const struct {
    int64_t rows, width;
    size_t pieces;
  } cases[] = {{1, 1, 1},       {31, 33, 1},         {kFloats, 1, 1},    {kFloats + 1, 1, 2},
               {3, kFloats, 3}, {2, kFloats + 5, 2}, {5, kFloats / 2, 3}};
  for (const auto& [rows, width, pieces] : cases) {
    const Filled there = Fill(HiddenDevice(), rows, width), here = Fill(TestDevice(), rows, width);
    EXPECT_TRUE(there.bytes == here.bytes) << rows << " x " << width;
    EXPECT_EQ(there.firsts.size(), pieces) << rows << " x " << width;
    EXPECT_EQ(here.firsts, std::vector<int64_t>{0});
  }
}

TEST(HostCopyTest, RowsAreReadInTheirOrder) {
  constexpr int64_t kRows = 5, kWidth = kHostPieceBytes / 8;
  std::vector<float> values(kRows * kWidth);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const auto buffer = DeviceBuffer::Allocate(HiddenDevice(), kRows * kWidth * 4);
  SNUG_ASSERT_OK(buffer);
  const View view{buffer->data(), kRows, kWidth};
  SNUG_ASSERT_OK(CopyMemory(HiddenDevice(), values.data(), view.bytes(), view.data));
  std::vector<float> read;
  SNUG_ASSERT_OK(ReadRows(HiddenDevice(), view, [&](const View& part, int64_t first) {
    EXPECT_EQ(first * kWidth, static_cast<int64_t>(read.size()));
    read.insert(read.end(), part.as<float>(), part.as<float>() + part.elements());
  }));
  EXPECT_TRUE(read == values);
}

// Nothing that these tests say would be worth anything otherwise.
TEST(HostCopyDeathTest, TheHostCannotTouchHiddenMemory) {
  const auto buffer = DeviceBuffer::Allocate(HiddenDevice(), 64);
  SNUG_ASSERT_OK(buffer);
  SNUG_ASSERT_OK(FillMemory(HiddenDevice(), buffer->data(), 7, 64));
  EXPECT_EQ(BytesOf(HiddenDevice(), buffer->data(), 64), std::vector<char>(64, 7));
  EXPECT_DEATH(std::memset(buffer->data(), 1, 64), "");
}

}  // namespace
}  // namespace snug::execute

// Tensors in memory that the host cannot read: files of the same bytes, by way of pieces. The
// memory here is the host's with every bit turned over, so that who reads it by itself reads
// something else.
#include "worker/checkpoint/tensor_bytes.h"

#include <algorithm>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/checkpoint/testbed.h"
#include "worker/checkpoint/safetensors_writer.h"

namespace snug::checkpoint {
namespace {

using ::testing::HasSubstr;

class TurnedMemory final : public TensorMemory {
 public:
  absl::Status Copy(const void* from, int64_t bytes, void* to) const override {
    largest_ = std::max(largest_, bytes);
    copied_ += bytes;
    const char* begin = static_cast<const char*>(from);
    std::transform(begin, begin + bytes, static_cast<char*>(to),
                   [](char byte) { return static_cast<char>(~byte); });
    return absl::OkStatus();
  }
  int64_t largest() const { return largest_; }
  int64_t copied() const { return copied_; }

  // The same tensors, there.
  void Move(Tensors& tensors) const {
    for (TensorBytes& tensor : tensors.list()) {
      ASSERT_TRUE(Copy(tensor.data, tensor.bytes, tensor.data).ok());
      tensor.memory = this;
    }
    largest_ = copied_ = 0;
  }

 private:
  mutable int64_t largest_ = 0, copied_ = 0;
};

// Of more than two pieces, the last an odd one.
constexpr int64_t kRows = 1024, kColumns = 2101;
static_assert(kRows * kColumns * 4 > 2 * kTensorPieceBytes);

Tensors LargeAndSmall() {
  Tensors tensors;
  tensors.AddNumbered("large", {kRows, kColumns}, 1.0f);
  tensors.AddBf16("small", {3}, {0x3f80, 0x4000, 0x4040});
  return tensors;
}

TEST(TensorBytesTest, AFileHasTheBytesOfTheMemory) {
  const TempFolder folder;
  Tensors tensors = LargeAndSmall();
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "host", tensors.list()));
  const TurnedMemory memory;
  memory.Move(tensors);
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "there", tensors.list()));
  EXPECT_TRUE(ReadText(folder / "host") == ReadText(folder / "there"));
  EXPECT_EQ(memory.largest(), kTensorPieceBytes);
}

TEST(TensorBytesTest, ARestoredCheckpointHasTheBytesOfTheSavedOne) {
  const TempFolder folder;
  Tensors weights = LargeAndSmall(), optimizer = SmallOptimizer(2.0f);
  const TurnedMemory memory;
  memory.Move(weights);
  memory.Move(optimizer);
  const std::string of_weights = weights.bytes(0), of_optimizer = optimizer.bytes(1);
  size_t all_bytes = 0;
  for (const Tensors* tensors : {&weights, &optimizer})
    for (const TensorBytes& tensor : tensors->list()) all_bytes += tensor.bytes;
  const auto saved = Save(folder / "checkpoints", StateAt(3), weights.list(), optimizer.list());
  SNUG_ASSERT_OK(saved);
  EXPECT_EQ(memory.copied(), static_cast<int64_t>(all_bytes));  // Each byte once.
  weights.Clear();
  optimizer.Clear();
  SNUG_ASSERT_OK(Restore(saved->path, weights.list(), optimizer.list()));
  EXPECT_TRUE(weights.bytes(0) == of_weights);
  EXPECT_TRUE(optimizer.bytes(1) == of_optimizer);
  EXPECT_LE(memory.largest(), kTensorPieceBytes);
}

// By its place in the tensor, not in a piece of it.
TEST(TensorBytesTest, ALateElementThatIsNotFiniteIsNamed) {
  const TempFolder folder;
  constexpr int64_t kBad = kRows * kColumns - 5;
  std::vector<float> values(kRows * kColumns, 1.0f);
  values[kBad] = std::numeric_limits<float>::infinity();
  Tensors tensors;
  tensors.AddF32("large", {kRows, kColumns}, values);
  const TurnedMemory memory;
  memory.Move(tensors);
  const absl::Status status = WriteSafetensorsFile(folder / "a", tensors.list()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr("large: element 2151419 is NaN"));
}

// What the memory refuses is the answer.
TEST(TensorBytesTest, AnErrorOfTheMemoryIsReported) {
  class Broken final : public TensorMemory {
    absl::Status Copy(const void* /*from*/, int64_t /*bytes*/, void* /*to*/) const override {
      return absl::InternalError("the device is lost");
    }
  };
  const TempFolder folder;
  const Broken memory;
  Tensors tensors = LargeAndSmall();
  SNUG_ASSERT_OK(WriteSafetensorsFile(folder / "a", tensors.list()));
  for (TensorBytes& tensor : tensors.list()) tensor.memory = &memory;
  EXPECT_EQ(WriteSafetensorsFile(folder / "b", tensors.list()).status().message(),
            "the device is lost");
  const auto file = OpenFile::Open(folder / "a", Links::kRefuse);
  SNUG_ASSERT_OK(file);
  EXPECT_EQ(FillTensor(*file, 0, tensors.list()[0]).message(), "the device is lost");
}

}  // namespace
}  // namespace snug::checkpoint

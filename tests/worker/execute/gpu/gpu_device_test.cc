// A GPU as a Device: memory, copies, the order of streams, products, kernels.
#include "worker/execute/gpu/gpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/rows.h"
#include "tests/worker/execute/gpu/test_gpu.h"

namespace snug::execute {
namespace {

using program::DType;
using testing::HasSubstr;

class GpuDeviceTest : public testing::TestWithParam<Ahead> {
 protected:
  float* Floats(int64_t count) {
    buffers_.push_back(*DeviceBuffer::Allocate(*gpu_, count * 4));
    return reinterpret_cast<float*>(buffers_.back().data());
  }
  float* Upload(const std::vector<float>& values, int stream = 0) {
    float* to = Floats(static_cast<int64_t>(values.size()));
    gpu_->Copy(to, values.data(), static_cast<int64_t>(values.size()) * 4, stream);
    return to;
  }
  std::vector<float> Download(const float* from, size_t count, int stream = 0) {
    std::vector<float> values(count);
    gpu_->Copy(values.data(), from, static_cast<int64_t>(count) * 4, stream);
    return values;
  }

  const std::unique_ptr<GpuDevice> gpu_ = OpenTestGpu(GetParam());
  std::vector<DeviceBuffer> buffers_;  // Gone before the device.
};

std::vector<float> Counting(size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

TEST_P(GpuDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(gpu_->name(), "gpu:0");
  EXPECT_FALSE(gpu_->host_reads_memory());
  EXPECT_FALSE(gpu_->machine().cpu);
  EXPECT_EQ(gpu_->machine().threads, 2);
}

// Kernels take a null stream for the CPU.
TEST_P(GpuDeviceTest, EachStreamIsOneOfItsOwn) {
  EXPECT_NE(gpu_->stream(0), nullptr);
  EXPECT_NE(gpu_->stream(0), gpu_->stream(1));
  EXPECT_EQ(gpu_->stream(0), gpu_->stream(0));
}

TEST_P(GpuDeviceTest, MemoryIsCountedAndCapped) {
  gpu_->allocator().SetCap(1024);
  {
    const auto taken = DeviceBuffer::Allocate(*gpu_, 1000);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_TRUE(gpu_->runtime().IsDeviceMemory(taken->data()));
    EXPECT_EQ(gpu_->allocator().usage().current_bytes, 1024);
    const auto refused = DeviceBuffer::Allocate(*gpu_, 1);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(gpu_->allocator().usage().current_bytes, 0);
  EXPECT_EQ(gpu_->allocator().usage().peak_bytes, 1024);
}

TEST_P(GpuDeviceTest, SeesWhatItsDriverHasGiven) {
  constexpr int64_t kBytes = 64 << 20;
  const int64_t before = gpu_->SeenBytes();
  {
    const auto taken = DeviceBuffer::Allocate(*gpu_, kBytes);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(gpu_->SeenBytes() - before, kBytes);
  }
  EXPECT_EQ(gpu_->SeenBytes(), before);
}

// Beyond the GPU itself, whatever the cap is; and it can go on.
TEST_P(GpuDeviceTest, MoreThanThereIsIsRefused) {
  const int64_t total = gpu_->runtime().memory().total_bytes;
  const auto refused = DeviceBuffer::Allocate(*gpu_, total + 1);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.status().message(), HasSubstr("has no"));
  EXPECT_EQ(Download(Upload({5.0f}), 1), std::vector<float>{5.0f});
}

TEST_P(GpuDeviceTest, SlicesLieInItsMemory) {
  const auto arena = *DeviceBuffer::Allocate(*gpu_, 512);
  TrackingAllocator& allocator = gpu_->allocator();
  allocator.OpenSlice({.base = arena.data() + 128, .bytes = 256, .op = "op"});
  const auto first = allocator.Take(100), second = allocator.Take(128);
  EXPECT_EQ(first.address, arena.data() + 128);
  EXPECT_EQ(second.address, arena.data() + 256);
  EXPECT_THROW(allocator.Take(1), SliceExceeded);
  allocator.GiveBack(second);
  allocator.GiveBack(first);
  EXPECT_EQ(allocator.CloseSlice(), 256);
}

TEST_P(GpuDeviceTest, WhatTheHostGaveMayBeReusedAtOnce) {
  std::vector<float> values = Counting(1000);
  float* there = Upload(values);
  std::fill(values.begin(), values.end(), 0.0f);
  EXPECT_EQ(Download(there, 1000), Counting(1000));
}

// Large ones go through pinned memory, which is used again while what it held may be on its way:
// pieces that are whole, a part of one, many copies behind one another, on two streams.
TEST_P(GpuDeviceTest, LargeCopiesFromTheHostArriveWhole) {
  constexpr int64_t kPiece = kPinnedPieceBytes / 4;
  std::vector<std::pair<float*, std::vector<float>>> sent;
  for (const int64_t count : {kLeastStagedBytes / 4 + 1, kPiece, 3 * kPiece + 5, kPiece / 2}) {
    for (const int stream : {0, 1}) {
      std::vector<float> values = Counting(static_cast<size_t>(count));
      for (float& value : values) value += static_cast<float>(sent.size());
      sent.emplace_back(Upload(values, stream), values);
      std::fill(values.begin(), values.end(), -1.0f);  // Nobody looks at it any more.
    }
  }
  ASSERT_TRUE(gpu_->Synchronize().ok());
  for (const auto& [there, values] : sent)
    EXPECT_TRUE(Download(there, values.size()) == values) << values.size();
}

TEST_P(GpuDeviceTest, CopiesOfNothingDoNothing) {
  gpu_->Copy(nullptr, nullptr, 0, 0);
  gpu_->Fill(nullptr, 0, 0, 0);
  EXPECT_TRUE(gpu_->Synchronize().ok());
}

TEST_P(GpuDeviceTest, AStreamRunsInOrder) {
  float* x = Upload(Counting(1000));
  float* y = Floats(1000);
  gpu_->Fill(y, 0, 4000, 0);
  gpu_->Copy(y, x, 2000, 0);
  gpu_->Fill(x, 0xff, 4000, 0);
  std::vector<float> expected = Counting(1000);
  std::fill(expected.begin() + 500, expected.end(), 0.0f);
  EXPECT_EQ(Download(y, 1000), expected);
}

// Work that stream 2 has to wait for is long, and issued while stream 2 is idle.
TEST_P(GpuDeviceTest, AWaitOrdersTwoStreams) {
  constexpr int64_t kCount = 1 << 18;
  const float* x = Upload(Counting(kCount), 1);
  float* y = Floats(kCount);
  float* z = Floats(kCount);
  gpu_->stream(2);
  for (int i = 0; i < 8; ++i) gpu_->Fill(y, i, kCount * 4, 1);
  gpu_->Copy(y, x, kCount * 4, 1);
  gpu_->Record(/*event=*/7, /*stream=*/1);
  gpu_->Wait(7, 2);
  gpu_->Copy(z, y, kCount * 4, 2);
  gpu_->Record(8, 2);
  gpu_->Wait(8, 1);
  gpu_->Fill(y, 0, kCount * 4, 1);
  EXPECT_TRUE(gpu_->Synchronize().ok());
  EXPECT_EQ(Download(z, kCount, 2), Counting(kCount));
  EXPECT_EQ(Download(y, 1, 2), std::vector<float>{0.0f});
}

// An event's number is used again: a wait is for what was recorded last before it.
TEST_P(GpuDeviceTest, AnEventIsRecordedAgain) {
  float* x = Floats(1);
  float* y = Floats(2);
  gpu_->stream(1);
  gpu_->stream(2);
  for (int64_t i = 0; i < 2; ++i) {
    const auto value = static_cast<float>(i + 1);
    gpu_->Copy(x, &value, 4, 1);
    gpu_->Record(3, 1);
    gpu_->Wait(3, 2);
    gpu_->Copy(y + i, x, 4, 2);
    gpu_->Record(4, 2);
    gpu_->Wait(4, 1);
  }
  EXPECT_TRUE(gpu_->Synchronize().ok());
  EXPECT_EQ(Download(y, 2, 2), (std::vector<float>{1.0f, 2.0f}));
}

TEST_P(GpuDeviceTest, AWaitForWhatNothingRecordedIsRefused) {
  EXPECT_THROW(gpu_->Wait(5, 0), std::runtime_error);
  gpu_->Record(5, 1);
  gpu_->Wait(5, 0);
  ASSERT_TRUE(gpu_->Synchronize().ok());  // Here one tape ends; the next one has its own events.
  EXPECT_THROW(gpu_->Wait(5, 0), std::runtime_error);
}

TEST_P(GpuDeviceTest, KernelsRunOnItsStreams) {
  const float* x = Upload({1.0f, 2.0f, 3.0f});
  float* y = Upload({10.0f, 20.0f, 30.0f});
  const kernels::Error error = kernels::AddRows(
      {.a = x, .b = y, .y = y, .N = 3, .C = 1, .a_stride = 1, .b_stride = 1, .y_stride = 1},
      gpu_->stream(0));
  EXPECT_TRUE(error.ok()) << error.parameter;
  EXPECT_EQ(Download(y, 3), (std::vector<float>{11.0f, 22.0f, 33.0f}));
}

INSTANTIATE_TEST_SUITE_P(Ahead, GpuDeviceTest,
                         testing::Values(Ahead::kFirstStream, Ahead::kLastStream));

// ---- products -----------------------------------------------------------------------------------

struct Form {
  DType dtype, c_dtype;
  bool a_transposed, b_transposed, add;
};

std::vector<Form> Forms() {
  std::vector<Form> forms;
  for (const auto& [dtype, c_dtype] : {std::pair{DType::kF32, DType::kF32},
                                       {DType::kF32, DType::kBF16},
                                       {DType::kBF16, DType::kF32},
                                       {DType::kBF16, DType::kBF16}}) {
    for (const bool add : {false, true}) {
      forms.push_back({dtype, c_dtype, false, false, add});
      forms.push_back({dtype, c_dtype, false, true, add});
      forms.push_back({dtype, c_dtype, true, false, add});
    }
  }
  return forms;
}

// A matrix of a number type on the GPU, with a gap of 8 elements behind each row (a product's rows
// need not lie behind one another; cuBLAS wants multiples of 16 bytes to be fast).
class Rows {
 public:
  Rows(Device& gpu, int64_t rows, int64_t columns, DType dtype)
      : stride(columns + 8),
        values(static_cast<size_t>(rows * stride)),
        buffer_(*DeviceBuffer::Allocate(gpu, rows * stride * SizeOf(dtype))),
        gpu_(gpu),
        dtype_(dtype) {
    static std::mt19937 random(1);
    for (float& x : values) x = std::normal_distribution<float>()(random);
    std::vector<kernels::bf16> rounded;
    for (float& x : values) {
      rounded.push_back(kernels::ToBf16(x));
      if (dtype == DType::kBF16) x = kernels::ToFloat(rounded.back());
    }
    const void* from = rounded.data();
    if (dtype == DType::kF32) from = values.data();
    gpu.Copy(data(), from, buffer_.bytes(), 0);
  }
  void* data() const { return buffer_.data(); }
  double at(int64_t row, int64_t column) const {
    return values[static_cast<size_t>(row * stride + column)];
  }
  // What is there now.
  std::vector<float> Download() const {
    std::vector<float> now(values.size());
    if (dtype_ == DType::kF32) {
      gpu_.Copy(now.data(), data(), buffer_.bytes(), 0);
      return now;
    }
    std::vector<kernels::bf16> rounded(values.size());
    gpu_.Copy(rounded.data(), data(), buffer_.bytes(), 0);
    for (size_t i = 0; i < now.size(); ++i) now[i] = kernels::ToFloat(rounded[i]);
    return now;
  }

  const int64_t stride;
  std::vector<float> values;

 private:
  const DeviceBuffer buffer_;
  Device& gpu_;
  const DType dtype_;
};

// Against sums in float64; what lies between the rows of the result stays.
TEST(GpuProductsTest, EveryFormMatchesFloat64) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  constexpr int64_t kM = 24, kN = 40, kK = 56;
  constexpr float kAlpha = 0.75f;
  for (const Form& form : Forms()) {
    const Rows a(*gpu, form.a_transposed ? kK : kM, form.a_transposed ? kM : kK, form.dtype);
    const Rows b(*gpu, form.b_transposed ? kN : kK, form.b_transposed ? kK : kN, form.dtype);
    const Rows c(*gpu, kM, kN, form.c_dtype);
    GemmCall call{.a = a.data(), .b = b.data(), .c = c.data(), .m = kM, .n = kN, .k = kK};
    call.a_stride = a.stride;
    call.b_stride = b.stride;
    call.c_stride = c.stride;
    call.a_transposed = form.a_transposed;
    call.b_transposed = form.b_transposed;
    call.dtype = form.dtype;
    call.c_dtype = form.c_dtype;
    call.alpha = kAlpha;
    call.add = form.add;
    gpu->Multiply(call, 0);
    const std::vector<float> result = c.Download();
    // Sums of 56 products of about 1, and bf16's rounding: at most 2^-8 of the value.
    const double rounding = form.c_dtype == DType::kF32 ? 0.0 : 0x1p-8;
    for (int64_t i = 0; i < kM; ++i) {
      for (int64_t j = 0; j < c.stride; ++j) {
        double expected = j < kN && !form.add ? 0.0 : c.at(i, j);
        for (int64_t l = 0; j < kN && l < kK; ++l) {
          expected += kAlpha * (form.a_transposed ? a.at(l, i) : a.at(i, l)) *
                      (form.b_transposed ? b.at(j, l) : b.at(l, j));
        }
        ASSERT_NEAR(result[static_cast<size_t>(i * c.stride + j)], expected,
                    1e-5 + rounding * std::abs(expected));
      }
    }
  }
}

// fp32 into bf16 comes in parts that fill the device's staging: of rows here, whose last part is
// shorter, then of columns. Each element is rounded once, from its sum with what was there.
TEST(GpuProductsTest, ALargeProductIntoBf16ComesInParts) {
  const std::unique_ptr<GpuDevice> gpu = OpenTestGpu();
  constexpr int64_t kElements = kStagedProductBytes / 4;
  for (const auto& [m, n] :
       {std::pair{kElements / 512 + 3, int64_t{512}}, std::pair{int64_t{1}, kElements + 24}}) {
    const Rows a(*gpu, m, 1, DType::kF32), b(*gpu, 1, n, DType::kF32), c(*gpu, m, n, DType::kBF16);
    GemmCall call{.a = a.data(), .b = b.data(), .c = c.data(), .m = m, .n = n, .k = 1};
    call.a_stride = a.stride;
    call.b_stride = b.stride;
    call.c_stride = c.stride;
    call.c_dtype = DType::kBF16;
    call.add = true;
    gpu->Multiply(call, 0);
    const std::vector<float> result = c.Download();
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < c.stride; ++j) {
        const double sum = c.at(i, j) + (j < n ? a.at(i, 0) * b.at(0, j) : 0.0);
        ASSERT_NEAR(result[static_cast<size_t>(i * c.stride + j)], sum, 0x1.01p-8 * std::abs(sum))
            << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace snug::execute

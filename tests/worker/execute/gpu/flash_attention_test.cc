// ATen's attention and ATen's memory, on a real GPU (label gpu).
#include "worker/execute/gpu/flash_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/types.h"
#include "worker/execute/device.h"
#include "worker/execute/ops/ops.h"
#include "worker/program/flash_attention.h"
#include "worker/program/workspace.h"

namespace snug::execute {
namespace {

using program::Direction;
using program::DType;

// ATen's first use of a GPU settles whose memory it takes: one device for all tests.
Device& Gpu() {
  static Device& device = *OpenDevice("gpu:0", /*threads=*/2)->release();
  return device;
}

// ---- memory -------------------------------------------------------------------------------------

TEST(TorchAllocatorTest, WhatAtenTakesIsCounted) {
  TrackingAllocator& allocator = Gpu().allocator();
  const int64_t before = allocator.usage().current_bytes;
  {
    const at::Tensor tensor = at::empty({1000}, at::TensorOptions(at::kByte).device(at::kCUDA));
    EXPECT_EQ(allocator.usage().current_bytes, before + 1024);
  }
  EXPECT_EQ(allocator.usage().current_bytes, before);
}

TEST(TorchAllocatorTest, InsideAnOpItComesFromTheSlice) {
  const DeviceBuffer arena = *DeviceBuffer::Allocate(Gpu(), 4096);
  const auto options = at::TensorOptions(at::kByte).device(at::kCUDA);
  TrackingAllocator& allocator = Gpu().allocator();
  allocator.OpenSlice({.base = arena.data(), .bytes = 2048, .op = "op"});
  {
    const at::Tensor tensor = at::empty({2000}, options);
    EXPECT_EQ(tensor.data_ptr(), arena.data());
    EXPECT_THROW(at::empty({64}, options), SliceExceeded);
  }
  EXPECT_EQ(allocator.CloseSlice(), 2048);
}

// ---- attention ----------------------------------------------------------------------------------

struct Case {
  int64_t heads, kv_heads, width, window;
};

// Attention of a few documents in a number type: operands, results and gradients on the GPU.
class Attention {
 public:
  Attention(const Case& shape, DType dtype) : dtype_(dtype) {
    op_.code = program::OpCode::kAttention;
    op_.name = "attention";
    op_.attributes.heads = shape.heads;
    op_.attributes.kv_heads = shape.kv_heads;
    op_.attributes.head_width = shape.width;
    op_.attributes.window = shape.window;
    op_.attributes.scale = 1.0 / std::sqrt(static_cast<double>(shape.width));
    std::mt19937 random(1);
    const int64_t q = shape.heads * shape.width, k = shape.kv_heads * shape.width;
    run_.in = {Normal(q, random), Normal(k, random), Normal(k, random)};
    run_.d_out[0] = Normal(q, random);
    run_.out = {Take(q, dtype), Take(shape.heads, DType::kF32)};
    run_.d_in = {Take(q, dtype), Take(k, dtype), Take(k, dtype)};
    batch_.tokens = kTokens;
    batch_.documents = static_cast<int64_t>(kOffsets.size()) - 1;
    batch_.offsets = kOffsets.data();
    const View offsets = Take(2, DType::kF32);  // A 64-bit number for each token: enough.
    Gpu().Copy(offsets.data, kOffsets.data(), sizeof(kOffsets), 0);
    batch_.device_offsets = offsets.as<int64_t>();
    const View offsets32 = Take(1, DType::kF32);
    const std::vector<int32_t> in_32_bits(kOffsets.begin(), kOffsets.end());
    Gpu().Copy(offsets32.data, in_32_bits.data(), sizeof(int32_t) * in_32_bits.size(), 0);
    batch_.device_offsets32 = offsets32.as<int32_t>();
    run_.op = &op_;
    run_.batch = &batch_;
    run_.device = &Gpu();
  }

  // Forward and backward, each from a slice of exactly what is declared.
  void Run(const OpFunctions& functions) {
    RunIn(Direction::kForward, functions.forward);
    RunIn(Direction::kBackward, functions.backward);
  }
  // o, dq, dk, dv.
  std::vector<std::vector<float>> Results() const {
    return {Download(run_.out[0]), Download(run_.d_in[0]), Download(run_.d_in[1]),
            Download(run_.d_in[2])};
  }

 private:
  static constexpr int64_t kTokens = 300;
  static constexpr std::array<int64_t, 5> kOffsets = {0, 7, 8, 137, kTokens};

  void RunIn(Direction direction, void (*function)(const OpRun&)) {
    const program::RunShape shape{.op = &op_,
                                  .direction = direction,
                                  .key = {kTokens, batch_.documents, 163},
                                  .compute = dtype_};
    const int64_t declared = program::WorkspaceBytes(shape, Gpu().machine());
    const DeviceBuffer slice = *DeviceBuffer::Allocate(Gpu(), declared);
    TrackingAllocator& allocator = Gpu().allocator();
    allocator.OpenSlice({.base = slice.data(), .bytes = declared, .op = "attention"});
    function(run_);
    const int64_t used = allocator.CloseSlice();
    EXPECT_TRUE(Gpu().Synchronize().ok());
    if (function == OpFunctionsWithFlash()[kAttention].forward ||
        function == OpFunctionsWithFlash()[kAttention].backward) {
      EXPECT_LE(declared, 1.1 * static_cast<double>(used) + 65536.0);
    }
  }

  View Take(int64_t width, DType dtype) {
    buffers_.push_back(*DeviceBuffer::Allocate(Gpu(), kTokens * width * SizeOf(dtype)));
    return {buffers_.back().data(), kTokens, width, dtype};
  }
  // The same numbers in both types.
  View Normal(int64_t width, std::mt19937& random) {
    const View view = Take(width, dtype_);
    std::vector<float> values(static_cast<size_t>(view.elements()));
    std::vector<kernels::bf16> rounded;
    for (float& x : values) {
      rounded.push_back(kernels::ToBf16(std::normal_distribution<float>()(random)));
      x = kernels::ToFloat(rounded.back());
    }
    const void* from = rounded.data();
    if (dtype_ == DType::kF32) from = values.data();
    Gpu().Copy(view.data, from, view.bytes(), 0);
    return view;
  }
  static std::vector<float> Download(const View& view) {
    std::vector<float> values(static_cast<size_t>(view.elements()));
    if (view.dtype == DType::kF32) {
      Gpu().Copy(values.data(), view.data, view.bytes(), 0);
      return values;
    }
    std::vector<kernels::bf16> rounded(values.size());
    Gpu().Copy(rounded.data(), view.data, view.bytes(), 0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = kernels::ToFloat(rounded[i]);
    return values;
  }

  static constexpr auto kAttention = static_cast<size_t>(program::OpCode::kAttention);
  const DType dtype_;
  std::vector<DeviceBuffer> buffers_;
  program::Op op_;
  Batch batch_;
  OpRun run_;
};

double RelativeDistance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference / norm);
}

// Against our own kernel in fp32, which tests/kernels holds against float64. ATen rounds p and ds
// to bf16 for their products, and each result: a few times 2^-9.
TEST(FlashAttentionTest, MatchesOurKernelInFp32) {
  for (const Case& shape : {Case{4, 4, 64, 0}, Case{4, 2, 64, 0}, Case{6, 2, 128, 50},
                            Case{2, 1, 96, 1}, Case{2, 2, 256, 7}, Case{3, 1, 24, 0}}) {
    ASSERT_TRUE(
        program::FlashServes({.heads = shape.heads, .head_width = shape.width}, DType::kBF16));
    Attention flash(shape, DType::kBF16), own(shape, DType::kF32);
    flash.Run(OpFunctionsWithFlash()[static_cast<size_t>(program::OpCode::kAttention)]);
    own.Run({AttentionForward, AttentionBackward});
    const auto results = flash.Results(), expected = own.Results();
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_LT(RelativeDistance(results[i], expected[i]), 0x1p-7)
          << "result " << i << " of heads of " << shape.width;
    }
  }
}

}  // namespace
}  // namespace snug::execute

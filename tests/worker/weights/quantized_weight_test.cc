// A matrix that is quantised piece by piece, on a device whose memory the host reads and on one
// where it does not, against the kernel over the whole matrix at once.
#include "worker/weights/quantized_weight.h"

#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/frozen_linear.h"
#include "tests/worker/checkpoint/testbed.h"
#include "tests/worker/execute/hidden_device.h"
#include "tests/worker/execute/toy_run.h"
#include "worker/program/quantization.h"

namespace snug::weights {
namespace {

using execute::Device;
using execute::HiddenDevice;
using execute::OwnedMatrix;
using execute::TestDevice;
using execute::View;
using program::DType;
using program::Parameter;
using program::Quantization;

struct Shape {
  int64_t rows, columns;
};
// The last two are larger than a piece of 4 MiB, in fp32 and in bf16.
constexpr Shape kShapes[] = {{1, 1}, {3, 50}, {64, 64}, {5, 4097}, {1100, 1001}, {600, 4096}};

kernels::DType KernelType(DType dtype) {
  return dtype == DType::kF32 ? kernels::DType::kF32 : kernels::DType::kBF16;
}

Parameter ParameterOf(Quantization kind, const OwnedMatrix& w) {
  Parameter parameter;
  parameter.key = "model.layers.0.self_attn.q_proj.weight";
  parameter.shape = {w.rows, w.width};
  parameter.dtype = w.dtype;
  parameter.quantization = kind;
  return parameter;
}

OwnedMatrix Drawn(const Shape& shape, DType dtype) {
  OwnedMatrix w(shape.rows, shape.columns, dtype);
  std::mt19937 random(static_cast<uint32_t>(shape.rows));
  w.FillNormal(random, 0.01f, 0.3f);
  return w;
}

QuantizedWeight Made(Device& device, const Parameter& parameter, const OwnedMatrix& w) {
  const auto size = program::SizeOf(w.dtype);
  const auto read = [&](int64_t first, const View& piece) {
    std::memcpy(piece.data, w.bytes.data() + first * size, static_cast<size_t>(piece.bytes()));
    return absl::OkStatus();
  };
  auto made = QuantizedWeight::Allocate(device, parameter);
  EXPECT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->Fill(device, parameter, read).ok());
  return *std::move(made);
}

// The bytes of the parts, one behind another, of the device's memory.
template <typename T>
std::vector<char> Part(Device& device, const T* from, int64_t count) {
  return BytesOf(device, from, count * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
std::vector<char> Host(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const char*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

void ExpectNf4(const OwnedMatrix& w) {
  const int64_t n = w.rows * w.width;
  std::vector<uint8_t> codes(static_cast<size_t>(kernels::Nf4CodeBytes(n)));
  std::vector<float> absmax(static_cast<size_t>(kernels::Nf4Groups(n)));
  std::vector<uint8_t> absmax_codes(static_cast<size_t>(kernels::Nf4Blocks(n)));
  std::vector<double> workspace(static_cast<size_t>(kernels::QuantizeNf4Workspace(n) / 8 + 1));
  float offset = 0.0f;
  ASSERT_TRUE(kernels::QuantizeNf4({.w = w.bytes.data(),
                                    .to = {.codes = codes.data(),
                                           .absmax = absmax.data(),
                                           .absmax_codes = absmax_codes.data(),
                                           .offset = &offset},
                                    .N = w.rows,
                                    .K = w.width,
                                    .w_stride = w.width,
                                    .dtype = KernelType(w.dtype),
                                    .workspace = workspace.data()},
                                   nullptr)
                  .ok());
  const Parameter parameter = ParameterOf(Quantization::kNf4, w);
  for (Device* device : {&TestDevice(), &HiddenDevice()}) {
    const int64_t before = device->allocator().usage().current_bytes;
    const QuantizedWeight made = Made(*device, parameter, w);
    EXPECT_EQ(device->allocator().usage().current_bytes - before, ValueBytes(parameter));
    EXPECT_EQ(made.counted_bytes(), ValueBytes(parameter));
    const kernels::Nf4Weight& nf4 = made.weight().nf4;
    EXPECT_EQ(made.weight().kind, kernels::FrozenKind::kNf4);
    EXPECT_TRUE(Part(*device, static_cast<uint8_t*>(nf4.codes), codes.size()) == Host(codes));
    EXPECT_TRUE(Part(*device, nf4.absmax, absmax.size()) == Host(absmax));
    EXPECT_TRUE(Part(*device, nf4.absmax_codes, absmax_codes.size()) == Host(absmax_codes));
    EXPECT_TRUE(Part(*device, nf4.offset, 1) == Host(std::vector<float>{offset}));
  }
}

void ExpectInt8(const OwnedMatrix& w) {
  std::vector<int8_t> codes(static_cast<size_t>(w.rows * w.width));
  std::vector<float> absmax(static_cast<size_t>(w.rows));
  ASSERT_TRUE(kernels::QuantizeInt8Weight(
                  {.w = w.bytes.data(),
                   .to = {.codes = codes.data(), .absmax = absmax.data(), .codes_stride = w.width},
                   .N = w.rows,
                   .K = w.width,
                   .w_stride = w.width,
                   .dtype = KernelType(w.dtype)},
                  nullptr)
                  .ok());
  const Parameter parameter = ParameterOf(Quantization::kInt8, w);
  for (Device* device : {&TestDevice(), &HiddenDevice()}) {
    const QuantizedWeight made = Made(*device, parameter, w);
    EXPECT_EQ(made.counted_bytes(), ValueBytes(parameter));
    EXPECT_TRUE(Part(*device, made.weight().int8.codes, codes.size()) == Host(codes));
    EXPECT_TRUE(Part(*device, made.weight().int8.absmax, absmax.size()) == Host(absmax));
  }
}

TEST(QuantizedWeightTest, PiecesHaveTheBytesOfTheWhole) {
  for (const Shape& shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(testing::Message() << shape.rows << " x " << shape.columns);
      ExpectNf4(Drawn(shape, dtype));
      ExpectInt8(Drawn(shape, dtype));
    }
  }
}

// 4.127 bits a weight and one byte a weight, as the daemon counts them.
TEST(QuantizedWeightTest, BytesAreThoseOfTheFormat) {
  const OwnedMatrix w(4096, 4096, DType::kBF16);
  const int64_t n = w.rows * w.width;
  EXPECT_EQ(ValueBytes(ParameterOf(Quantization::kNone, w)), 2 * n);
  EXPECT_EQ(ValueBytes(ParameterOf(Quantization::kInt8, w)), n + 4 * 4096);
  EXPECT_EQ(ValueBytes(ParameterOf(Quantization::kNf4, w)),
            kernels::Nf4Bytes(n, /*nested=*/true) + 60);  // The offset has a cache line.
}

// What cannot be read ends the loading.
TEST(QuantizedWeightTest, AReaderThatFailsIsHeard) {
  const OwnedMatrix w = Drawn({64, 64}, DType::kF32);
  for (const Quantization kind : {Quantization::kNf4, Quantization::kInt8}) {
    const auto read = [](int64_t, const View&) { return absl::DataLossError("torn"); };
    const Parameter parameter = ParameterOf(kind, w);
    const QuantizedWeight made = QuantizedWeight::Allocate(TestDevice(), parameter).value();
    EXPECT_EQ(made.Fill(TestDevice(), parameter, read), absl::DataLossError("torn"));
  }
}

}  // namespace
}  // namespace snug::weights

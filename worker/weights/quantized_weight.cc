#include "worker/weights/quantized_weight.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/nf4_levels.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/program/quantization.h"

namespace snug::weights {
namespace {

using execute::CopyMemory;
using execute::Device;
using execute::KernelStatus;
using execute::View;
using program::DType;
using program::Parameter;
using program::Quantization;

static_assert(program::kNf4BlockElements == kernels::kNf4Block);
static_assert(program::kNf4GroupBlocks == kernels::kNf4Group);

constexpr int64_t kF32 = sizeof(float);

kernels::DType KernelType(DType dtype) {
  return dtype == DType::kF32 ? kernels::DType::kF32 : kernels::DType::kBF16;
}

// A matrix's elements, as many at a time as a piece of the host's memory holds.
class Pieces {
 public:
  Pieces(const Parameter& parameter, int64_t multiple)
      : n_(parameter.elements()),
        dtype_(parameter.dtype),
        at_once_(std::min(
            n_, std::max<int64_t>(1, execute::kHostPieceBytes / (multiple * SizeOf(dtype_))) *
                    multiple)),
        room_(static_cast<size_t>(at_once_ * SizeOf(dtype_))) {}

  // Calls use(first, piece) with each, of a multiple of elements but for the last.
  template <typename Use>
  absl::Status ForEach(QuantizedWeight::ReadElements read, const Use& use) {
    for (int64_t first = 0; first < n_; first += at_once_) {
      const View piece = {room_.data(), 1, std::min(at_once_, n_ - first), dtype_};
      RETURN_IF_ERROR(read(first, piece));
      RETURN_IF_ERROR(use(first, piece));
    }
    return absl::OkStatus();
  }
  int64_t at_once() const { return at_once_; }

 private:
  const int64_t n_;
  const DType dtype_;
  const int64_t at_once_;
  std::vector<char> room_;
};

template <typename T>
absl::Status CopyVector(Device& device, const std::vector<T>& from, void* to) {
  return CopyMemory(device, from.data(), static_cast<int64_t>(from.size() * sizeof(T)), to);
}

// Scales of all blocks become codes, a scale per group of them, and their mean.
absl::Status QuantizeScales(Device& device, const std::vector<float>& absmax, int64_t n,
                            const kernels::Nf4Weight& to) {
  const int64_t groups = kernels::Nf4Groups(n);
  std::vector<uint8_t> codes(absmax.size());
  std::vector<float> scales(static_cast<size_t>(groups));
  double sum = 0.0;
  for (int64_t g = 0; g < groups; ++g)
    sum +=
        kernels::Nf4GroupSum(absmax.data() + g * kernels::kNf4Group, kernels::Nf4GroupSize(n, g));
  auto offset = static_cast<float>(sum / static_cast<double>(kernels::Nf4Blocks(n)));
  kernels::QuantizeNf4Params params;
  params.to = {.absmax = scales.data(), .absmax_codes = codes.data(), .offset = &offset};
  params.N = 1;
  params.K = n;
  for (int64_t g = 0; g < groups; ++g)
    kernels::QuantizeNf4Group(params, kernels::kDynamicMap, absmax.data(), g);
  RETURN_IF_ERROR(CopyVector(device, codes, to.absmax_codes));
  RETURN_IF_ERROR(CopyVector(device, scales, to.absmax));
  return CopyMemory(device, &offset, kF32, to.offset);
}

// A piece has whole blocks, so that its codes are those of the whole matrix.
absl::Status FillNf4(Device& device, const Parameter& parameter, const kernels::Nf4Weight& to,
                     QuantizedWeight::ReadElements read) {
  const int64_t n = parameter.elements();
  std::vector<float> absmax(static_cast<size_t>(kernels::Nf4Blocks(n)));
  Pieces pieces(parameter, kernels::kNf4Block);
  std::vector<uint8_t> codes(static_cast<size_t>(kernels::Nf4CodeBytes(pieces.at_once())));
  RETURN_IF_ERROR(pieces.ForEach(read, [&](int64_t first, const View& piece) {
    RETURN_IF_ERROR(KernelStatus(
        "QuantizeNf4",
        kernels::QuantizeNf4(
            {.w = piece.data,
             .to = {.codes = codes.data(), .absmax = absmax.data() + kernels::Nf4Blocks(first)},
             .N = 1,
             .K = piece.width,
             .w_stride = piece.width,
             .dtype = KernelType(piece.dtype)},
            /*stream=*/nullptr)));
    return CopyMemory(device, codes.data(), kernels::Nf4CodeBytes(piece.width),
                      static_cast<char*>(to.codes) + kernels::Nf4CodeBytes(first));
  }));
  return QuantizeScales(device, absmax, n, to);
}

absl::Status FillInt8(Device& device, const Parameter& parameter, const kernels::Int8Weight& to,
                      QuantizedWeight::ReadElements read) {
  const int64_t columns = parameter.shape[1];
  Pieces pieces(parameter, columns);
  std::vector<int8_t> codes(static_cast<size_t>(pieces.at_once()));
  std::vector<float> absmax(static_cast<size_t>(pieces.at_once() / columns));
  return pieces.ForEach(read, [&](int64_t first, const View& piece) {
    const int64_t rows = piece.width / columns;
    RETURN_IF_ERROR(KernelStatus(
        "QuantizeInt8Weight",
        kernels::QuantizeInt8Weight(
            {.w = piece.data,
             .to = {.codes = codes.data(), .absmax = absmax.data(), .codes_stride = columns},
             .N = rows,
             .K = columns,
             .w_stride = columns,
             .dtype = KernelType(piece.dtype)},
            /*stream=*/nullptr)));
    RETURN_IF_ERROR(CopyMemory(device, codes.data(), piece.width, to.codes + first));
    return CopyMemory(device, absmax.data(), rows * kF32, to.absmax + first / columns);
  });
}

}  // namespace

QuantizedWeight QuantizedWeight::At(const Parameter& parameter, char* memory) {
  const program::QuantizedParts parts = program::PartsOf(parameter);
  QuantizedWeight made;
  made.data_ = memory;
  made.counted_bytes_ = execute::CountedBytes(parts.bytes);
  auto* absmax = reinterpret_cast<float*>(memory + parts.absmax);
  if (parameter.quantization == Quantization::kInt8) {
    made.weight_.kind = kernels::FrozenKind::kInt8;
    made.weight_.int8 = {.codes = reinterpret_cast<int8_t*>(memory),
                         .absmax = absmax,
                         .codes_stride = parameter.shape[1]};
    return made;
  }
  made.weight_.kind = kernels::FrozenKind::kNf4;
  made.weight_.nf4 = {.codes = memory,
                      .absmax = absmax,
                      .absmax_codes = reinterpret_cast<uint8_t*>(memory + parts.absmax_codes),
                      .offset = reinterpret_cast<float*>(memory + parts.offset)};
  return made;
}

absl::Status QuantizedWeight::Fill(Device& device, const Parameter& parameter,
                                   ReadElements read) const {
  return weight_.kind == kernels::FrozenKind::kInt8
             ? FillInt8(device, parameter, weight_.int8, read)
             : FillNf4(device, parameter, weight_.nf4, read);
}

absl::Status QuantizedWeight::Fill(Device& device, const Parameter& parameter,
                                   const Codes& from) const {
  const int64_t n = parameter.elements();
  if (weight_.kind == kernels::FrozenKind::kInt8) {
    RETURN_IF_ERROR(CopyMemory(device, from.codes, n, weight_.int8.codes));
    return CopyMemory(device, from.absmax, parameter.shape[0] * kF32, weight_.int8.absmax);
  }
  const kernels::Nf4Weight& to = weight_.nf4;
  const int64_t blocks = kernels::Nf4Blocks(n);
  RETURN_IF_ERROR(CopyMemory(device, from.codes, kernels::Nf4CodeBytes(n), to.codes));
  if (from.scales == nullptr) {
    std::vector<float> absmax(static_cast<size_t>(blocks));
    std::memcpy(absmax.data(), from.absmax, absmax.size() * sizeof(float));
    return QuantizeScales(device, absmax, n, to);
  }
  RETURN_IF_ERROR(CopyMemory(device, from.absmax, blocks, to.absmax_codes));
  RETURN_IF_ERROR(CopyMemory(device, from.scales, kernels::Nf4Groups(n) * kF32, to.absmax));
  return CopyMemory(device, &from.scales_mean, kF32, to.offset);
}

absl::StatusOr<QuantizedWeight> QuantizedWeight::Allocate(Device& device,
                                                          const Parameter& parameter) {
  ASSIGN_OR_RETURN(execute::DeviceBuffer memory,
                   execute::DeviceBuffer::Allocate(device, program::PartsOf(parameter).bytes));
  QuantizedWeight made = At(parameter, memory.data());
  made.memory_ = std::move(memory);
  return made;
}

}  // namespace snug::weights

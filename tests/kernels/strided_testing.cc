// Operands of strided ops for tests.
#include "tests/kernels/strided_testing.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "kernels/by_type.h"

namespace snug::kernels {
namespace {

constexpr uint8_t kGap = 0xA5;
constexpr int64_t kGapBytes = 16;  // Behind all, but where they end flush.

// Normal variates, or random bytes where elements are bytes.
void Fill(std::mt19937& engine, DType dtype, int64_t element_bytes, char* row, int64_t C) {
  std::normal_distribution<float> normal;
  for (int64_t c = 0; c < C; ++c) {
    char* at = row + c * element_bytes;
    if (element_bytes == 1) {
      *at = static_cast<char>(engine() % 256);
      continue;
    }
    const DType half = dtype == DType::kF32 ? DType::kBF16 : dtype;
    ByType(element_bytes == 4 ? DType::kF32 : half, [&](auto element) {
      element = Narrow<decltype(element)>(normal(engine));
      std::memcpy(at, &element, sizeof(element));
    });
  }
}

}  // namespace

int64_t Operands::Stride() const {
  if (layout_ == Layout::kFar) return (int64_t{1} << 31) + (C_ % 8 == 0 ? 8 : 5);
  return layout_ == Layout::kBad ? (C_ + 5) | 1 : (C_ + 7) / 8 * 8;
}

void* Operands::Add(int64_t element_bytes, int64_t rows, int64_t C, int64_t stride) {
  const bool aligned = layout_ == Layout::kAligned || layout_ == Layout::kFlush ||
                       (layout_ == Layout::kFar && C % 8 == 0);
  const int64_t offset = aligned ? 16 : element_bytes;
  const int64_t bytes = offset + ((rows - 1) * stride + C) * element_bytes;
  Operand operand = {nullptr, rows, C * element_bytes, stride * element_bytes, nullptr};
  if (rows > 1 && layout_ == Layout::kFar) {
    operand.data = sparse_.emplace_back(bytes).data();
  } else {
    Bytes& memory = near_.emplace_back(bytes + (layout_ == Layout::kFlush ? 0 : kGapBytes), kGap);
    operand.data = reinterpret_cast<char*>(memory.data());
    operand.memory = &memory;
  }
  has_memory_ = has_memory_ && operand.data != nullptr;
  if (!has_memory_) return nullptr;
  operand.data += offset;
  std::mt19937 engine(static_cast<uint32_t>(operands_.size()));
  for (int64_t i = 0; i < rows; ++i) {
    char* row = operand.data + i * operand.rows_apart;
    Fill(engine, dtype_, element_bytes, row, C);
    before_.append(row, operand.row_bytes);
  }
  operands_.push_back(operand);
  return operand.data;
}

bool Operands::GapsUntouched() const {
  WaitForKernels();
  for (const Operand& operand : operands_) {
    if (operand.memory == nullptr) continue;
    Bytes rest = *operand.memory;  // With its rows taken out.
    uint8_t* data =
        rest.data() + (operand.data - reinterpret_cast<const char*>(operand.memory->data()));
    for (int64_t i = 0; i < operand.rows; ++i) {
      std::memset(data + i * operand.rows_apart, kGap, operand.row_bytes);
    }
    if (std::any_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte != kGap; }))
      return false;
  }
  return true;
}

std::string Operands::Now() const {
  WaitForKernels();
  std::string now;
  for (const Operand& operand : operands_) {
    for (int64_t i = 0; i < operand.rows; ++i) {
      now.append(operand.data + i * operand.rows_apart, operand.row_bytes);
    }
  }
  return now;
}

}  // namespace snug::kernels

#include "worker/report/crc32c.h"

#include <array>

namespace snug::report {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;  // 0x1edc6f41, its lowest bit first.

// What eight shifts make of each value of the lowest byte.
constexpr std::array<uint32_t, 256> Table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1) != 0 ? kReversedPolynomial : 0);
    table[byte] = rest;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = Table();

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t rest = ~uint32_t{0};
  for (const char byte : bytes)
    rest = (rest >> 8) ^ kTable[(rest ^ static_cast<unsigned char>(byte)) & 0xff];
  return ~rest;
}

}  // namespace snug::report

// How many rows a head takes its loss of at a time, where nobody pins it: the bytes of their logits
// against the speed of their products. The default is a property of the machine.
#ifndef WORKER_PROGRAM_HEAD_ROWS_H_
#define WORKER_PROGRAM_HEAD_ROWS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/program/op_table.h"

namespace snug::program {

// On a CPU 64 are slower, and 1024 slightly faster for 4 times the bytes of logits.
inline constexpr int32_t kHeadRowsOfCpu = 256;

// A GPU has one of these. 256 rows of 4,096 columns are 32 tiles of a product, for the 132
// multiprocessors of an H100; and where the head is trained, each pass reads and writes the whole
// gradient of its matrix.
inline constexpr std::array<int32_t, 4> kHeadRowChoices = {256, 512, 1024, 2048};
// For a GPU that nobody has measured: an estimate, 0.97 of the speed of 2,048 rows on an H100
// (tests/gpu/expected.md).
inline constexpr int32_t kHeadRowsOfGpu = 1024;

// By what a row takes at each choice: the fewest rows that are within 3 % of the best.
inline int32_t FewestFastHeadRows(
    const std::array<double, kHeadRowChoices.size()>& seconds_per_row) {
  constexpr double kMost = 1.03;
  const double best = *std::min_element(seconds_per_row.begin(), seconds_per_row.end());
  size_t i = 0;
  while (seconds_per_row[i] > kMost * best) ++i;
  return kHeadRowChoices[i];
}

inline bool IsHeadRowChoice(int64_t rows) {
  return std::find(kHeadRowChoices.begin(), kHeadRowChoices.end(), rows) != kHeadRowChoices.end();
}

inline int32_t HeadRowsOn(const Machine& machine) {
  if (machine.cpu) return kHeadRowsOfCpu;
  return machine.head_rows > 0 ? machine.head_rows : kHeadRowsOfGpu;
}

}  // namespace snug::program

#endif  // WORKER_PROGRAM_HEAD_ROWS_H_

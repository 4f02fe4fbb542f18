#include "worker/program/patch_order.h"

#include <cstddef>
#include <utility>

namespace snug::program {
namespace {

// The rows, or the columns, of each part of window number `index` of a side.
std::vector<std::pair<int64_t, int64_t>> Cuts(const PatchOrder& order, int64_t index) {
  const bool last = index + 1 == order.side / order.window;
  const int64_t cut = order.window - order.shift;
  if (order.shift == 0 || !last) return {{0, order.window}};
  return {{0, cut}, {cut, order.window}};
}

// body(first row, first column, rows, columns) for each part, by its place in the shifted grid.
template <typename Body>
void ForParts(const PatchOrder& order, const Body& body) {
  for (int64_t top = 0; top < order.side; top += order.window) {
    for (int64_t left = 0; left < order.side; left += order.window) {
      for (const auto& [y, y_end] : Cuts(order, top / order.window)) {
        for (const auto& [x, x_end] : Cuts(order, left / order.window))
          body(top + y, left + x, y_end - y, x_end - x);
      }
    }
  }
}

std::vector<int32_t> InFours(const PatchOrder& order) {
  std::vector<int32_t> patches;
  const int64_t half = order.side / 2;
  for (const int32_t merged : PatchesOf({.side = half, .window = order.window})) {
    const int64_t y = 2 * (merged / half), x = 2 * (merged % half);
    for (const auto& [down, across] : {std::pair<int64_t, int64_t>{0, 0}, {1, 0}, {0, 1}, {1, 1}})
      patches.push_back(static_cast<int32_t>((y + down) * order.side + x + across));
  }
  return patches;
}

}  // namespace

std::vector<int32_t> PatchesOf(const PatchOrder& order) {
  if (order.in_fours) return InFours(order);
  std::vector<int32_t> patches;
  ForParts(order, [&](int64_t top, int64_t left, int64_t rows, int64_t columns) {
    for (int64_t y = top; y < top + rows; ++y) {
      for (int64_t x = left; x < left + columns; ++x) {
        const int64_t row = (y + order.shift) % order.side, column = (x + order.shift) % order.side;
        patches.push_back(static_cast<int32_t>(row * order.side + column));
      }
    }
  });
  return patches;
}

std::vector<int32_t> RowsBetween(const PatchOrder& from, const PatchOrder& to) {
  const std::vector<int32_t> before = PatchesOf(from);
  std::vector<int32_t> row_of(before.size());
  for (size_t r = 0; r < before.size(); ++r)
    row_of[static_cast<size_t>(before[r])] = static_cast<int32_t>(r);
  std::vector<int32_t> rows;
  for (const int32_t patch : PatchesOf(to)) rows.push_back(row_of[static_cast<size_t>(patch)]);
  return rows;
}

WindowParts PartsOf(const PatchOrder& order) {
  WindowParts parts;
  ForParts(order, [&](int64_t, int64_t, int64_t rows, int64_t columns) {
    parts.patches.push_back(rows * columns);
    parts.widths.push_back(columns);
  });
  return parts;
}

}  // namespace snug::program

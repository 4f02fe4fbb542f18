#include "worker/program/tape.h"

#include <numeric>

namespace snug::program {

SlotIndex::SlotIndex(const std::vector<Slot>& slots, size_t instructions, int32_t Slot::*time)
    : begin_(instructions + 1), slots_(slots.size()) {
  for (const Slot& slot : slots) ++begin_[static_cast<size_t>(slot.*time) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<int32_t> next(begin_.begin(), begin_.end() - 1);
  for (size_t s = 0; s < slots.size(); ++s)
    slots_[static_cast<size_t>(next[static_cast<size_t>(slots[s].*time)]++)] =
        static_cast<int32_t>(s);
}

}  // namespace snug::program

// The interpreter's memory: forms of values and copies, and the poison around lifetimes.
#include <algorithm>
#include <limits>

#include "gtest/gtest.h"
#include "tests/worker/program/interpreter.h"

namespace snug::program {

// A form of a value, or a value of its form. What an op quantises comes back bit by bit here: a
// plan's order is at stake, not the codes.
void Interpreter::Form(const Instruction& line) {
  const Operand &from = line.operands.in[0], &to = line.operands.out[0];
  const bool packs = line.op->code != OpCode::kDequantize;
  const auto elements = static_cast<size_t>(Count(to) * (packs ? from.width : to.width));
  if (packs) {
    coded_.In(to.slot).assign(At(from).at, At(from).at + elements);
  } else {
    ASSERT_EQ(coded_.In(from.slot).size(), elements) << "the code is read outside its lifetime";
    std::copy_n(coded_.In(from.slot).data(), elements, At(to).at);
  }
}

void Interpreter::Copy(const Instruction& line) {
  const Operand &from = line.operands.in[0], &to = line.operands.out[0];
  copies_.Issue(line, [elements = Count(to) * to.width, read = At(from).at, written = At(to).at] {
    std::copy_n(read, elements, written);
  });
}

void Interpreter::Poison(int32_t index) {
  const Slot& slot = tape_->slots[static_cast<size_t>(index)];
  const auto begin = MemoryOf(slot.region).begin() + slot.offset / kToyElement;
  std::fill(begin, begin + slot.bytes / kToyElement, std::numeric_limits<double>::quiet_NaN());
  coded_.Erase(index);
}

void Interpreter::PoisonAround(int32_t instruction, bool before) {
  for (size_t s = 0; s < tape_->slots.size(); ++s) {
    const Slot& slot = tape_->slots[s];
    if ((before ? slot.first : slot.last) != instruction) continue;
    // What is not of a pass alone lives until the last.
    const bool outer = slot.first <= static_cast<int32_t>(loop_line_);
    if (before || !in_loop_ || !outer || last_pass_) Poison(static_cast<int32_t>(s));
  }
}

}  // namespace snug::program

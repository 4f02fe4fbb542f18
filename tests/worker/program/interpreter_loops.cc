#include <algorithm>

#include "tests/worker/program/interpreter.h"

namespace snug::program {

void Interpreter::RunLoop(size_t t) {
  const LoopHead& loop = tape_->instructions[t].loop;
  const int64_t rows = Count({.rows = loop.rows});
  in_loop_ = true;
  loop_line_ = t;
  for (first_row_ = 0; first_row_ < rows; first_row_ += loop.rows_of_pass) {
    rows_of_pass_ = std::min(loop.rows_of_pass, rows - first_row_);
    last_pass_ = first_row_ + rows_of_pass_ == rows;
    for (int32_t i = 1; i <= loop.lines; ++i) RunLine(t + static_cast<size_t>(i));
  }
  in_loop_ = false;
}

double* Interpreter::InSlot(int32_t slot) {
  return arena_.data() + tape_->slots[static_cast<size_t>(slot)].offset / kToyElement;
}

void Interpreter::ZeroOrUpdate(const Instruction& line) {
  std::vector<double>& gradient = gradients_[static_cast<size_t>(line.parameters[0])];
  const int64_t elements = static_cast<int64_t>(gradient.size());
  if (line.kind == Instruction::Kind::kZero) {
    std::fill_n(InSlot(line.operands.out[0].slot), elements, 0.0);
  } else {
    std::copy_n(InSlot(line.operands.in[0].slot), elements, gradient.data());
  }
}

int64_t Interpreter::FirstRow(const Operand& operand) const {
  return in_loop_ && !operand.of_pass ? first_row_ : 0;
}

}  // namespace snug::program

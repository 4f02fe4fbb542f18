#include <algorithm>
#include <cmath>

#include "tests/worker/program/begun_gradients.h"
#include "tests/worker/program/interpreter.h"

namespace snug::program {

void Interpreter::RunLoop(size_t t) {
  const LoopHead& loop = tape_->instructions[t].loop;
  const int64_t rows = Count({.rows = loop.rows});
  in_loop_ = true;
  loop_line_ = t;
  first_row_ = 0;
  do {
    rows_of_pass_ = std::min(loop.rows_of_pass, rows - first_row_);
    last_pass_ = first_row_ + rows_of_pass_ == rows;
    for (int32_t i = 1; i <= loop.lines; ++i) RunLine(t + static_cast<size_t>(i));
    first_row_ += loop.rows_of_pass;
  } while (first_row_ < rows);
  in_loop_ = false;
}

double* Interpreter::InSlot(int32_t slot) {
  return arena_.data() + tape_->slots[static_cast<size_t>(slot)].offset / kToyElement;
}

void Interpreter::Update(const Instruction& line) {
  std::vector<double>& gradient = gradients_[static_cast<size_t>(line.parameters[0])];
  std::copy_n(InSlot(line.operands.in[0].slot), gradient.size(), gradient.data());
}

void Interpreter::SpoilGradients(const Tape& tape) {
  const std::vector<bool> begun = BegunGradients(tape, gradients_.size());
  for (size_t i = 0; i < gradients_.size(); ++i)
    std::fill(gradients_[i].begin(), gradients_[i].end(), begun[i] ? std::nan("") : 0.0);
}

void Interpreter::BeginGradients(const Instruction& line) {
  if (in_loop_ && first_row_ > 0) return;
  for (size_t i = 0; i < line.parameters.size(); ++i) {
    if ((line.begins >> i & 1) == 0) continue;
    const Parameter& parameter = program_.parameters[static_cast<size_t>(line.parameters[i])];
    const OpAttributes& a = line.op->attributes;
    const int64_t width = parameter.elements() / parameter.shape[0];
    const int64_t rows =
        a.rows > 0 && line.op->code != OpCode::kHeadLoss ? a.rows : parameter.shape[0];
    std::fill_n(Gradient(i) + a.row * width, rows * width, 0.0);
  }
}

int64_t Interpreter::FirstRow(const Operand& operand) const {
  const bool of_loop = in_loop_ && operand.rows == tape_->instructions[loop_line_].loop.rows;
  return of_loop && !operand.of_pass ? first_row_ : 0;
}

}  // namespace snug::program

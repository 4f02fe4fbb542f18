#include <algorithm>
#include <cmath>

#include "tests/worker/program/interpreter.h"

namespace snug::program {

void Interpreter::RunLoop(size_t t) {
  const LoopHead& loop = tape_->instructions[t].loop;
  const int64_t rows = Count({.rows = loop.rows});
  in_loop_ = true;
  loop_line_ = t;
  first_row_ = 0;
  for (int32_t i = 1; i <= loop.lines && rows == 0; ++i) {
    line_ = &tape_->instructions[t + static_cast<size_t>(i)];
    BeginGradients(*line_);
  }
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

void Interpreter::Update(const Instruction& line) {
  std::vector<double>& gradient = gradients_[static_cast<size_t>(line.parameters[0])];
  std::copy_n(InSlot(line.operands.in[0].slot), gradient.size(), gradient.data());
}

void Interpreter::SpoilGradients(const Tape& tape) {
  for (auto& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0);
  for (const Instruction& line : tape.instructions) {
    for (size_t i = 0; i < line.parameters.size(); ++i) {
      if ((line.begins >> i & 1) == 0) continue;
      auto& gradient = gradients_[static_cast<size_t>(line.parameters[i])];
      std::fill(gradient.begin(), gradient.end(), std::nan(""));
    }
  }
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
  return in_loop_ && !operand.of_pass ? first_row_ : 0;
}

}  // namespace snug::program

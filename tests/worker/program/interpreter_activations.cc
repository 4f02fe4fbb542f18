// The interpreter's ops that take each element by itself: activations, alone and in gated units,
// and what forms stand for; sums, and the masks of dropout.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "tests/worker/program/interpreter.h"

namespace snug::program {
namespace {

double Act(Activation activation, double x) {
  if (activation == Activation::kTanh) return std::tanh(x);
  if (activation == Activation::kRelu) return std::max(x, 0.0);
  if (activation == Activation::kGelu) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
  return 0.5 * x * (1.0 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
}

double ActSlope(Activation activation, double x) {
  if (activation == Activation::kTanh) return 1.0 - std::tanh(x) * std::tanh(x);
  if (activation == Activation::kRelu) return x > 0.0 ? 1.0 : 0.0;
  if (activation == Activation::kGelu) {
    const double density = std::exp(-0.5 * x * x) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * density;
  }
  if (activation == Activation::kGeluTanh) {
    const double t = std::tanh(0.7978845608 * (x + 0.044715 * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608 * (1.0 + 0.134145 * x * x);
  }
  const double s = 1.0 / (1.0 + std::exp(-x));
  return s * (1.0 + x * (1.0 - s));
}

// A mask of the op's own, the same whenever it is asked for; `row`: of all rows, in a loop too.
double Kept(const Op& op, int64_t row, int64_t column) {
  const size_t word =
      std::hash<std::string>{}(op.name) + static_cast<size_t>(row * 31 + column * 7);
  return word % 10 < 3 ? 0.0 : 1.0 / (1.0 - op.attributes.dropout);
}

}  // namespace

void Interpreter::ElementwiseForward(const Instruction& line, const Op& op, int64_t n) {
  if (op.code == OpCode::kGlu || op.code == OpCode::kActivation)
    return ActivatedForward(line, op, n);
  if (op.code != OpCode::kDropout && op.code != OpCode::kAdd) return FixedForward(line, op, n);
  const View x = In(line, 0), y = Out(line, 0);
  const bool whole = op.attributes.whole_documents;
  const int64_t row = DrawnRow(line, op, (in_loop_ ? first_row_ : 0) + n) +
                      (other_masks_ && line.recomputed ? 1 : 0);
  for (int64_t i = 0; i < y.width; ++i) {
    y.row(n)[i] = op.code == OpCode::kAdd ? x.row(n)[i] + In(line, 1).row(n)[i]
                                          : x.row(n)[i] * Kept(op, row, whole ? 0 : i);
  }
}

void Interpreter::FixedForward(const Instruction& line, const Op& op, int64_t n) const {
  const auto rounded = [](double x) {
    return std::ldexp(std::nearbyint(std::ldexp(x, kToyFixedBits)), -kToyFixedBits);
  };
  const View v = In(line, 0), y = Out(line, 0);
  for (int64_t i = 0; i < y.width; ++i) {
    double sum = v.row(n)[i];
    if (op.code == OpCode::kToFixed) sum = rounded(sum);
    if (op.code == OpCode::kFixedAdd) sum += rounded(In(line, 1).row(n)[i]);
    if (op.code == OpCode::kFixedSubtract) sum -= rounded(In(line, 1).row(n)[i]);
    y.row(n)[i] = sum;
  }
}

void Interpreter::ElementwiseBackward(const Instruction& line, const Op& op, int64_t n) {
  if (op.code == OpCode::kGlu) return GluBackward(line, op, n);
  if (op.code == OpCode::kActivation) return ActivationBackward(line, op, n);
  if (op.code != OpCode::kDropout) return;
  const View dy = DOut(line, 0), dx = DIn(line, 0);
  const bool whole = op.attributes.whole_documents;
  const int64_t row = DrawnRow(line, op, (in_loop_ ? first_row_ : 0) + n);
  for (int64_t i = 0; i < dy.width; ++i) dx.row(n)[i] = dy.row(n)[i] * Kept(op, row, whole ? 0 : i);
}

// Of row n. What is held of input 0 in two bits is noted before any of it is written over.
void Interpreter::ActivatedForward(const Instruction& line, const Op& op, int64_t n) {
  const View x = In(line, 0), y = Out(line, 0);
  const View up = op.code == OpCode::kGlu ? In(line, 1) : View{};
  const Operand& form = line.operands.out[1];
  if (form && n == 0) WriteCodes(form, x, Count(line.operands.in[0]));
  for (int64_t i = 0; i < y.width; ++i)
    y.row(n)[i] = Act(op.attributes.activation, x.row(n)[i]) * (up ? up.row(n)[i] : 1.0);
}

Interpreter::View Interpreter::Taken(const Instruction& line) const {
  const Operand& operand = line.operands.in[0];
  if (!operand || operand.dtype != DType::kU8) return In(line, 0);
  const std::vector<double>& values = coded_.In(operand.slot);
  const int64_t width = static_cast<int64_t>(values.size()) / AllRows(operand);
  return {const_cast<double*>(values.data()) + FirstRow(operand) * width, width};
}

void Interpreter::WriteCodes(const Operand& form, const View& x, int64_t rows) {
  std::vector<double>& coded = coded_.In(form.slot);
  coded.resize(static_cast<size_t>((FirstRow(form) + rows) * x.width));
  std::copy_n(x.at, rows * x.width, coded.end() - rows * x.width);
}

double Interpreter::SlopeAt(const Instruction& line, const Op& op, double x) const {
  const bool coded = line.operands.in[0].dtype == DType::kU8 && two_bit_slope_ != nullptr;
  return (coded ? two_bit_slope_ : ActSlope)(op.attributes.activation, x);
}

void Interpreter::GluBackward(const Instruction& line, const Op& op, int64_t n) {
  const View dy = DOut(line, 0), dx = DIn(line, 0), d_up = DIn(line, 1);
  const double *gate = Taken(line).row(n), *up = In(line, 1).row(n);
  for (int64_t i = 0; i < dy.width; ++i) {
    const double g = gate[i], u = up[i], dp = dy.row(n)[i];
    if (dx) dx.row(n)[i] = dp * u * SlopeAt(line, op, g);
    if (d_up) d_up.row(n)[i] = dp * Act(op.attributes.activation, g);
  }
}

void Interpreter::ActivationBackward(const Instruction& line, const Op& op, int64_t n) {
  const View dy = DOut(line, 0), dx = DIn(line, 0);
  const double* x = Taken(line).row(n);
  for (int64_t i = 0; i < dy.width; ++i) dx.row(n)[i] = dy.row(n)[i] * SlopeAt(line, op, x[i]);
}

}  // namespace snug::program

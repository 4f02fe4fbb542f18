// Rows of images: a patch stands at every token behind the first, which have parameters of their
// own. What a patch has in it follows from its token's id.
#include <cmath>
#include <vector>

#include "tests/worker/program/interpreter.h"

namespace snug::program {
namespace {

constexpr size_t kFirstRow = 2;  // Behind the weight and the bias.

}  // namespace

// The parameter that stands at a place of a document; 0: a patch does.
size_t Interpreter::RowInPlace(const Op& op, int64_t position) {
  const auto index = static_cast<size_t>(position) + kFirstRow;
  return index < op.parameters.size() ? index : 0;
}

std::vector<double> Interpreter::Patch(const Op& op, int64_t n) const {
  std::vector<double> patch;
  for (int64_t i = 0; i < op.attributes.patch_width; ++i)
    patch.push_back(std::sin(static_cast<double>(3 * Token(n) + i) + 0.5));
  return patch;
}

void Interpreter::PatchEmbeddingForward(const Instruction& line, const Op& op, int64_t n,
                                        int64_t position) const {
  const View x = Out(line, 0);
  const size_t own = RowInPlace(op, position);
  const std::vector<double> patch = Patch(op, n);
  for (int64_t i = 0; i < x.width; ++i) {
    double& to = x.row(n)[i];
    to = Weight(own == 0 ? 1 : own)[static_cast<size_t>(i)];
    if (own != 0) continue;
    const double* w = Weight(0).data() + i * op.attributes.patch_width;
    for (size_t k = 0; k < patch.size(); ++k) to += w[k] * patch[k];
  }
}

void Interpreter::PatchEmbeddingBackward(const Instruction& line, const Op& op, int64_t n,
                                         int64_t position) {
  const View dx = DOut(line, 0);
  const size_t own = RowInPlace(op, position);
  const std::vector<double> patch = Patch(op, n);
  double* sum = Gradient(own == 0 ? 1 : own);
  double* dw = own == 0 ? Gradient(0) : nullptr;
  for (int64_t i = 0; i < dx.width; ++i) {
    const double d = dx.row(n)[i];
    if (sum != nullptr) sum[i] += d;
    for (size_t k = 0; dw != nullptr && k < patch.size(); ++k)
      dw[i * op.attributes.patch_width + static_cast<int64_t>(k)] += d * patch[k];
  }
}

void Interpreter::ReorderRows(const Instruction& line, const Op& op) {
  const bool forward = line.direction == Direction::kForward;
  const View whole = forward ? In(line, 0) : DIn(line, 0);
  const View part = forward ? Out(line, 0) : DOut(line, 0);
  const std::vector<int32_t> index = RowsBetween(op.attributes.order_before, op.attributes.order);
  const auto patches = static_cast<int64_t>(index.size());
  for (int64_t n = 0; n < Count(forward ? line.operands.out[0] : line.operands.d_out[0]); ++n) {
    double* there = whole.row(n / patches * patches + index[static_cast<size_t>(n % patches)]);
    for (int64_t i = 0; i < part.width; ++i) {
      if (forward) part.row(n)[i] = there[i];
      if (!forward) there[i] = part.row(n)[i];
    }
  }
}

void Interpreter::MeanRows(const Instruction& line) {
  const bool forward = line.direction == Direction::kForward, add = (line.accumulate & 1) != 0;
  const Operand& rows = forward ? line.operands.in[0] : line.operands.d_in[0];
  const View all = At(rows), mean = forward ? Out(line, 0) : DOut(line, 0);
  const auto images = static_cast<int64_t>(batch_->document_lengths.size());
  const int64_t group = AllRows(rows) / images;
  if (forward) std::fill_n(mean.at, images * mean.width, 0.0);
  for (int64_t n = 0; n < images * group; ++n) {
    for (int64_t i = 0; i < all.width; ++i) {
      double &one = all.row(n)[i], &of_all = mean.row(n / group)[i];
      const double share = 1.0 / static_cast<double>(group);
      if (forward) of_all += share * one;
      if (!forward) one = share * of_all + (add ? one : 0.0);
    }
  }
}

int64_t Interpreter::DrawnRow(const Instruction& line, const Op& op, int64_t row) const {
  if (!op.attributes.whole_documents) return row;
  const bool forward = line.direction == Direction::kForward;
  const Operand& rows = forward ? line.operands.out[0] : line.operands.d_out[0];
  return row / (AllRows(rows) / static_cast<int64_t>(batch_->document_lengths.size()));
}

}  // namespace snug::program

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

}  // namespace snug::program

// Norms, for each vector of a row: as many as r is wide.
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/worker/program/interpreter.h"

namespace snug::program {
namespace {

double InverseRms(const double* x, int64_t width, double epsilon) {
  const double squares = std::inner_product(x, x + width, x, 0.0);
  return 1.0 / std::sqrt(squares / static_cast<double>(width) + epsilon);
}

}  // namespace

void Interpreter::NormalizeForward(const Instruction& line, const Op& op, int64_t n) const {
  const View x = In(line, 0), xhat = Out(line, 0), r = Out(line, 1);
  const int64_t width = x.width / r.width;
  for (int64_t v = 0; v < r.width; ++v) {
    std::vector<double> from(x.row(n) + v * width, x.row(n) + (v + 1) * width);
    if (op.attributes.centred) {
      const double mean =
          std::accumulate(from.begin(), from.end(), 0.0) / static_cast<double>(width);
      for (double& element : from) element -= mean;
    }
    const double scale = InverseRms(from.data(), width, op.attributes.epsilon);
    for (int64_t i = 0; i < width; ++i)
      xhat.row(n)[v * width + i] = from[static_cast<size_t>(i)] * scale;
    r.row(n)[v] = scale;
  }
}

void Interpreter::NormalizeBackward(const Instruction& line, const Op& op, int64_t n) {
  const View xhat = Out(line, 0), r = Out(line, 1), dx = DIn(line, 0);
  const int64_t width = dx.width / r.width;
  for (int64_t v = 0; v < r.width; ++v) {
    const double* d = DOut(line, 0).row(n) + v * width;
    const double* hat = xhat.row(n) + v * width;
    double* to = dx.row(n) + v * width;
    const double mean = std::inner_product(d, d + width, hat, 0.0) / static_cast<double>(width);
    const double all = op.attributes.centred ? std::accumulate(d, d + width, 0.0) : 0.0;
    for (int64_t i = 0; i < width; ++i)
      to[i] = r.row(n)[v] * (d[i] - all / static_cast<double>(width) - hat[i] * mean) +
              ((line.accumulate & 1) != 0 ? to[i] : 0.0);
  }
}

void Interpreter::RmsNormForward(const Instruction& line, const Op& op, int64_t n) const {
  const View x = In(line, 0), z = Out(line, 0), r = Out(line, 1);
  const std::vector<double>& gamma = Weight(0);
  const auto width = static_cast<int64_t>(gamma.size());
  for (int64_t v = 0; v < r.width; ++v) {
    const double* from = x.row(n) + v * width;
    const double scale = InverseRms(from, width, op.attributes.epsilon);
    for (int64_t i = 0; i < width; ++i)
      z.row(n)[v * width + i] =
          from[i] * scale * (op.attributes.offset + gamma[static_cast<size_t>(i)]);
    r.row(n)[v] = scale;
  }
}

void Interpreter::RmsNormBackward(const Instruction& line, const Op& op, int64_t n) {
  const View x = In(line, 0), r = Out(line, 1), dz = DOut(line, 0);
  const View dx = DIn(line, 0);
  const std::vector<double>& gamma = Weight(0);
  const auto width = static_cast<int64_t>(gamma.size());
  double* d_gamma = Gradient(0);
  for (int64_t v = 0; v < r.width; ++v) {
    std::vector<double> hat, d;  // xhat, and its gradient.
    for (int64_t i = v * width; i < (v + 1) * width; ++i) {
      const auto c = static_cast<size_t>(i - v * width);
      hat.push_back(x.row(n)[i] * r.row(n)[v]);
      d.push_back(dz.row(n)[i] * (op.attributes.offset + gamma[c]));
      if (d_gamma != nullptr) d_gamma[c] += dz.row(n)[i] * hat.back();
    }
    const double mean =
        std::inner_product(d.begin(), d.end(), hat.begin(), 0.0) / static_cast<double>(width);
    for (int64_t i = 0; dx && i < width; ++i) {
      const auto c = static_cast<size_t>(i);
      double& to = dx.row(n)[v * width + i];
      to = r.row(n)[v] * (d[c] - hat[c] * mean) + ((line.accumulate & 1) != 0 ? to : 0.0);
    }
  }
}

}  // namespace snug::program

// Attention of each document by itself, and the caps of scores and logits.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/worker/program/interpreter.h"

namespace snug::program {
namespace {

// The first row that a query sees.
int64_t FirstSeen(const OpAttributes& a, int64_t row, int64_t begin) {
  return a.window > 0 ? std::max(begin, row - a.window + 1) : begin;
}

// One behind the last row that a query of a document sees.
int64_t EndOfSeen(const OpAttributes& a, int64_t row, int64_t end_of_document) {
  return a.causal ? row + 1 : end_of_document;
}

}  // namespace

double Cap(double softcap, double x) {
  return softcap > 0.0 ? softcap * std::tanh(x / softcap) : x;
}
double CapSlope(double softcap, double x) {
  const double t = softcap > 0.0 ? std::tanh(x / softcap) : 0.0;
  return 1.0 - t * t;
}

// One query row over the keys of its document, up to itself where the op is causal.
void Interpreter::AttentionForward(const Instruction& line, const Op& op, RowOfDocument at) {
  const OpAttributes& a = op.attributes;
  const View q = In(line, 0), k = In(line, 1), v = In(line, 2);
  for (int64_t h = 0; h < a.heads; ++h) {
    const int64_t q_at = h * a.head_width, kv_at = h / (a.heads / a.kv_heads) * a.head_width;
    const double* query = q.row(at.row) + q_at;
    std::vector<double> scores;
    double sum = 0.0;
    const int64_t first = FirstSeen(a, at.row, at.begin);
    const int64_t end = EndOfSeen(a, at.row, at.end);
    for (int64_t m = first; m < end; ++m) {
      const double score =
          a.scale * std::inner_product(query, query + a.head_width, k.row(m) + kv_at, 0.0);
      scores.push_back(Cap(a.softcap, score));
      sum += std::exp(scores.back());
    }
    Out(line, 1).row(at.row)[h] = std::log(sum);
    for (int64_t i = 0; i < a.head_width; ++i) {
      double mixed = 0.0;
      for (int64_t m = first; m < end; ++m)
        mixed += std::exp(scores[static_cast<size_t>(m - first)]) / sum * v.row(m)[kv_at + i];
      Out(line, 0).row(at.row)[q_at + i] = mixed;
    }
  }
}

// From q, k, v, o and lse, a document at a time, written out only when it is complete: the
// gradients may lie over q, k and v.
void Interpreter::AttentionBackward(const Instruction& line, const Op& op) {
  const OpAttributes& a = op.attributes;
  const View q = In(line, 0), k = In(line, 1), v = In(line, 2);
  const View o = Out(line, 0), lse = Out(line, 1), d_o = DOut(line, 0);
  int64_t begin = 0;
  for (int length : batch_->documents(line.operands.d_out[0].rows)) {
    std::vector<double> dq(static_cast<size_t>(length * q.width)),
        dk(static_cast<size_t>(length * k.width)), dv = dk;
    for (int64_t n = 0; n < length; ++n) {
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t q_at = h * a.head_width, kv_at = h / (a.heads / a.kv_heads) * a.head_width;
        const double* qn = q.row(begin + n) + q_at;
        const double* don = d_o.row(begin + n) + q_at;
        const double delta =
            std::inner_product(don, don + a.head_width, o.row(begin + n) + q_at, 0.0);
        for (int64_t m = FirstSeen(a, n, 0); m < EndOfSeen(a, n, length); ++m) {
          const double* km = k.row(begin + m) + kv_at;
          const double* vm = v.row(begin + m) + kv_at;
          const double score = a.scale * std::inner_product(qn, qn + a.head_width, km, 0.0);
          const double p = std::exp(Cap(a.softcap, score) - lse.row(begin + n)[h]);
          const double dp = std::inner_product(don, don + a.head_width, vm, 0.0);
          const double ds = a.scale * p * (dp - delta) * CapSlope(a.softcap, score);
          for (int64_t i = 0; i < a.head_width; ++i) {
            dq[static_cast<size_t>(n * q.width + q_at + i)] += ds * km[i];
            dk[static_cast<size_t>(m * k.width + kv_at + i)] += ds * qn[i];
            dv[static_cast<size_t>(m * k.width + kv_at + i)] += p * don[i];
          }
        }
      }
    }
    const std::vector<double>* results[] = {&dq, &dk, &dv};
    for (size_t i = 0; i < 3; ++i) {
      if (const View to = DIn(line, i))
        std::copy(results[i]->begin(), results[i]->end(), to.row(begin));
    }
    begin += length;
  }
}

}  // namespace snug::program

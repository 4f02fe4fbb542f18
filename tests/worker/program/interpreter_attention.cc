// Attention of each document by itself, and the caps of scores and logits.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/worker/program/interpreter.h"

namespace snug::program {
namespace {

// The first key that query n of a document sees, and one behind the last.
int64_t FirstSeen(const OpAttributes& a, int64_t n) {
  return a.window > 0 ? std::max<int64_t>(0, n - a.window + 1) : 0;
}
int64_t EndOfSeen(const OpAttributes& a, int64_t n, int64_t keys) {
  return a.causal ? n + 1 : keys;
}

}  // namespace

double Cap(double softcap, double x) {
  return softcap > 0.0 ? softcap * std::tanh(x / softcap) : x;
}
double CapSlope(double softcap, double x) {
  const double t = softcap > 0.0 ? std::tanh(x / softcap) : 0.0;
  return 1.0 - t * t;
}

std::vector<Interpreter::Attended> Interpreter::AttendedOf(const Instruction& line) const {
  const OpAttributes& a = line.op->attributes;
  if (a.order.side > 0) return PartsOfWindows(a.order, batch_->document_lengths.size());
  std::vector<int> queries = batch_->documents(a.query_rows);
  const std::vector<int> keys = batch_->documents(a.key_rows);
  if (keys.size() < queries.size())  // Rows that are merged are one document.
    queries = {std::accumulate(queries.begin(), queries.end(), 0)};
  std::vector<Attended> all;
  Attended at = {};
  for (size_t d = 0; d < queries.size(); ++d) {
    at = {at.query + at.queries, queries[d], at.key + at.keys, keys[d]};
    all.push_back(at);
  }
  return all;
}

std::vector<Interpreter::Attended> Interpreter::PartsOfWindows(const PatchOrder& order,
                                                               size_t images) {
  std::vector<Attended> all;
  const WindowParts parts = PartsOf(order);
  int64_t first = 0;
  for (size_t part = 0; part < images * parts.patches.size(); ++part) {
    const int64_t patches = parts.patches[part % parts.patches.size()];
    all.push_back({first, patches, first, patches, parts.widths[part % parts.widths.size()]});
    first += patches;
  }
  return all;
}

std::optional<size_t> Interpreter::BiasOf(const Op& op, const Attended& at, int64_t head, int64_t n,
                                          int64_t m) const {
  const OpAttributes& a = op.attributes;
  if (at.width > 0) {  // By how far apart the two places are, down and across.
    const int64_t side = 2 * a.order.window - 1;
    const int64_t down = n / at.width - m / at.width + a.order.window - 1;
    const int64_t across = n % at.width - m % at.width + a.order.window - 1;
    return static_cast<size_t>((down * side + across) * a.heads + head);
  }
  const int64_t distance = n - m;
  if (a.distances.buckets == 0) return std::nullopt;
  const std::vector<int32_t> buckets = BucketsOf(a.distances, a.causal);
  const int64_t entry = std::clamp<int64_t>(a.distances.Origin(a.causal) + distance, 0,
                                            static_cast<int64_t>(buckets.size()) - 1);
  return static_cast<size_t>(buckets[static_cast<size_t>(entry)] * a.heads + head);
}

void Interpreter::AttentionForward(const Instruction& line, const Op& op) {
  for (const Attended& at : AttendedOf(line)) AttentionForward(line, op, at);
}

void Interpreter::AttentionForward(const Instruction& line, const Op& op, const Attended& at) {
  const OpAttributes& a = op.attributes;
  const View q = In(line, 0), k = In(line, 1), v = In(line, 2);
  for (int64_t n = 0; n < at.queries; ++n) {
    const int64_t row = at.query + n, first = FirstSeen(a, n), end = EndOfSeen(a, n, at.keys);
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t q_at = h * a.head_width, kv_at = h / (a.heads / a.kv_heads) * a.head_width;
      const double* query = q.row(row) + q_at;
      std::vector<double> scores;
      double sum = 0.0;
      for (int64_t m = first; m < end; ++m) {
        const double* key = k.row(at.key + m) + kv_at;
        const double score = a.scale * std::inner_product(query, query + a.head_width, key, 0.0);
        const auto bias = BiasOf(op, at, h, n, m);
        scores.push_back(Cap(a.softcap, score) + (bias ? Weight(0)[*bias] : 0.0));
        sum += std::exp(scores.back());
      }
      Out(line, 1).row(row)[h] = std::log(sum);
      for (int64_t i = 0; i < a.head_width; ++i) {
        double mixed = 0.0;
        for (int64_t m = first; m < end; ++m)
          mixed +=
              std::exp(scores[static_cast<size_t>(m - first)]) / sum * v.row(at.key + m)[kv_at + i];
        Out(line, 0).row(row)[q_at + i] = mixed;
      }
    }
  }
}

void Interpreter::AttentionBackward(const Instruction& line, const Op& op) {
  for (const Attended& at : AttendedOf(line)) AttentionBackward(line, op, at);
}

// From q, k, v, o and lse, written out only when the document is complete: the gradients may lie
// over q, k and v.
void Interpreter::AttentionBackward(const Instruction& line, const Op& op, const Attended& at) {
  const OpAttributes& a = op.attributes;
  const View q = In(line, 0), k = In(line, 1), v = In(line, 2);
  const View o = Out(line, 0), lse = Out(line, 1), d_o = DOut(line, 0);
  double* d_bias = op.parameters.empty() ? nullptr : Gradient(0);
  std::vector<double> dq(static_cast<size_t>(at.queries * q.width)),
      dk(static_cast<size_t>(at.keys * k.width)), dv = dk;
  for (int64_t n = 0; n < at.queries; ++n) {
    const int64_t row = at.query + n;
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t q_at = h * a.head_width, kv_at = h / (a.heads / a.kv_heads) * a.head_width;
      const double *qn = q.row(row) + q_at, *don = d_o.row(row) + q_at;
      const double delta = std::inner_product(don, don + a.head_width, o.row(row) + q_at, 0.0);
      for (int64_t m = FirstSeen(a, n); m < EndOfSeen(a, n, at.keys); ++m) {
        const double *km = k.row(at.key + m) + kv_at, *vm = v.row(at.key + m) + kv_at;
        const double score = a.scale * std::inner_product(qn, qn + a.head_width, km, 0.0);
        const auto bias = BiasOf(op, at, h, n, m);
        const double biased = Cap(a.softcap, score) + (bias ? Weight(0)[*bias] : 0.0);
        const double p = std::exp(biased - lse.row(row)[h]);
        const double dp = std::inner_product(don, don + a.head_width, vm, 0.0);
        if (d_bias != nullptr) d_bias[*bias] += p * (dp - delta);
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
  const int64_t rows[] = {at.query, at.key, at.key};
  for (size_t i = 0; i < 3; ++i) {
    if (const View to = DIn(line, i))
      std::copy(results[i]->begin(), results[i]->end(), to.row(rows[i]));
  }
}

}  // namespace snug::program

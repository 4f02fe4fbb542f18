#include "tests/kernels/attention_testing.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>

namespace snug::kernels {
namespace {

int64_t Sum(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (int64_t value : values) sum += value;
  return sum;
}

// Relative L2 errors. bf16 and fp16: of results rounded once, and of gradients that read a rounded
// o. What is all but 0, as with one visible key, is compared with 1. Scores of hundreds have
// absolute errors of 1e-5 in fp32, and so have their exponentials.
double LimitOf(const Attended& run, DType dtype) {
  if (dtype == DType::kBF16) return 1e-2;
  if (dtype == DType::kF16) return 1.25e-3;
  return run.c.spread > 2.0 ? 1e-5 : 1.5e-6;
}

}  // namespace

std::string AttentionCase::Text() const {
  std::string text = "lengths";
  for (int64_t length : lengths) text += " " + std::to_string(length);
  return text + ", heads " + std::to_string(heads) + "/" + std::to_string(kv_heads) + ", D " +
         std::to_string(D) + ", window " + std::to_string(window) + (causal ? "" : ", not causal") +
         ", softcap " + std::to_string(softcap) + ", dropout " + std::to_string(dropout) +
         ", bias " + std::to_string(bias) + " from " + std::to_string(origin) + " pitch " +
         std::to_string(pitch) +
         (dtype == DType::kF32    ? ", fp32"
          : dtype == DType::kBF16 ? ", bf16"
                                  : ", fp16");
}

// m of kernels/attention.h, from its words.
double Attended::Kept(int64_t row, int64_t head, int64_t key) const {
  if (c.dropout == 0.0) return 1.0;
  const int64_t longest = *std::max_element(key_counts.begin(), key_counts.end());
  const int64_t groups = (longest + 63) / 64;
  const int64_t block = ((row * c.heads + head) * groups + key / 64) * 16 + key % 16;
  const Random4 random = RandomBlock(Shape().site, static_cast<uint64_t>(block));
  const bool kept = random.word[key % 64 / 16] / 2 >= c.dropout * 2147483648.0;
  return kept ? 1.0 / (1.0 - c.dropout) : 0.0;
}

int64_t AttentionCase::tokens() const { return Sum(lengths); }

Attended::Attended(const AttentionCase& c)
    : c(c),
      scale(0.9 / std::sqrt(static_cast<double>(c.D))),
      q(Sum(c.lengths), c.heads * c.D, c.dtype),
      k(Sum(c.lengths) + Sum(c.earlier), c.kv_heads * c.D, c.dtype),
      v(k.N(), k.C(), c.dtype),
      o(q.N(), q.C(), c.dtype),
      lse(q.N(), c.heads),
      dO(q.N(), q.C(), c.dtype),
      dq(q.N(), q.C(), c.dtype),
      dk(k.N(), k.C(), c.dtype),
      dv(k.N(), k.C(), c.dtype),
      bias(c.heads, std::max<int64_t>(1, c.bias)),
      d_bias(bias.N(), bias.C()) {
  int64_t begin = 0;
  for (size_t d = 0; d < c.lengths.size(); ++d) {
    offsets.push_back(offsets.back() + c.lengths[d]);
    key_begins.push_back(begin);
    key_counts.push_back(c.lengths[d] + (c.earlier.empty() ? 0 : c.earlier[d]));
    begin += key_counts.back();
  }
  widths.assign(c.widths.begin(), c.widths.end());
  q.Fill(1, c.spread);
  k.Fill(2, c.spread);
  v.Fill(3);
  dO.Fill(4);
  bias.Fill(5);
  d_bias.Fill(6, 0.0);
}

AttentionShape Attended::Shape() const {
  return {.heads = c.heads,
          .kv_heads = c.kv_heads,
          .D = c.D,
          .documents = static_cast<int64_t>(c.lengths.size()),
          .query_offsets = offsets.data(),
          .key_begins = c.earlier.empty() ? nullptr : key_begins.data(),
          .key_counts = c.earlier.empty() ? nullptr : key_counts.data(),
          .device_query_offsets = offsets.data(),
          .device_key_begins = c.earlier.empty() ? nullptr : key_begins.data(),
          .device_key_counts = c.earlier.empty() ? nullptr : key_counts.data(),
          .window = c.window,
          .causal = c.causal,
          .scale = static_cast<float>(scale),
          .softcap = static_cast<float>(c.softcap),
          .dropout = c.dropout,
          .site = {.seed = 11, .step = 5, .micro_batch = 2, .op = 77},
          .bias = {c.bias == 0 ? nullptr : static_cast<const float*>(bias.data()), c.bias,
                   bias.stride(), 1, c.origin, c.pitch, widths.data(), widths.data()},
          .dtype = c.dtype};
}

void Attended::Work(int64_t bytes) {
  WaitForKernels();
  ASSERT_EQ(bytes % 64, 0);
  workspace.assign(static_cast<size_t>(bytes) / sizeof(float) + 16, std::nanf(""));
  std::fill(workspace.end() - 16, workspace.end(), 7.0f);
}

bool Attended::WithinWorkspace() const {
  WaitForKernels();
  return std::all_of(workspace.end() - 16, workspace.end(), [](float x) { return x == 7.0f; });
}

AttentionForwardParams Attended::ForwardParams() {
  const AttentionSizes sizes = SizesOf(Shape(), omp_get_max_threads());
  const int64_t bytes = OnCpu() ? AttentionForwardBytes(sizes) : 0;
  Work(bytes);
  return {.shape = Shape(),
          .q = q.data(),
          .k = k.data(),
          .v = v.data(),
          .o = o.data(),
          .lse = lse.floats(),
          .q_stride = q.stride(),
          .k_stride = k.stride(),
          .v_stride = v.stride(),
          .o_stride = o.stride(),
          .lse_stride = lse.stride(),
          .workspace = workspace.data(),
          .workspace_bytes = bytes};
}

int64_t Attended::BackwardBytes() const {
  AttentionSizes sizes = SizesOf(Shape(), omp_get_max_threads());
  sizes.bias_entries = c.bias;
  return OnCpu() ? AttentionBackwardBytes(sizes) : AttentionBackwardStreamBytes(sizes);
}

AttentionBackwardParams Attended::BackwardParams() {
  const int64_t bytes = BackwardBytes();
  Work(bytes);
  return {.shape = Shape(),
          .dO = dO.data(),
          .q = q.data(),
          .k = k.data(),
          .v = v.data(),
          .o = o.data(),
          .lse = lse.floats(),
          .dq = dq.data(),
          .dk = dk.data(),
          .dv = dv.data(),
          .d_bias = c.bias == 0 ? nullptr : d_bias.floats(),
          .dO_stride = dO.stride(),
          .q_stride = q.stride(),
          .k_stride = k.stride(),
          .v_stride = v.stride(),
          .o_stride = o.stride(),
          .lse_stride = lse.stride(),
          .dq_stride = dq.stride(),
          .dk_stride = dk.stride(),
          .dv_stride = dv.stride(),
          .d_bias_stride = d_bias.stride(),
          .workspace = workspace.data(),
          .workspace_bytes = bytes};
}

void Attended::Forward() {
  ASSERT_EQ(Name(AttentionForward(ForwardParams(), TestStream())), "ok: ");
  EXPECT_TRUE(WithinWorkspace());
}

void Attended::Backward() {
  ASSERT_EQ(Name(AttentionBackward(BackwardParams(), TestStream())), "ok: ");
  EXPECT_TRUE(WithinWorkspace());
}

Bytes AllBytes(const Attended& run) {
  Bytes bytes;
  for (const Matrix* m : {&run.o, &run.lse, &run.dq, &run.dk, &run.dv, &run.d_bias})
    bytes.insert(bytes.end(), m->bytes().begin(), m->bytes().end());
  return bytes;
}

double ErrorOf(const Matrix& got, const Reference& want) {
  double norm = 0.0;
  for (double element : want) norm += element * element;
  return RelativeError(got, want) * std::min(1.0, std::sqrt(norm));
}

void ExpectNear(const Attended& run, const Matrix& got, const Reference& want, const char* what) {
  const double limit = LimitOf(run, &got == &run.d_bias ? run.c.dtype : got.dtype());
  EXPECT_LE(ErrorOf(got, want), limit) << run.c.Text() << ": " << what;  // NaN is not <=.
  EXPECT_TRUE(got.GapsUntouched()) << run.c.Text() << ": " << what;
}

Expected::Expected(const Attended& run, const AttentionInputs& in, bool gradients)
    : o(in.q.size(), 0.0), lse(static_cast<size_t>(run.q.N() * run.c.heads), 0.0) {
  if (gradients) {
    dq.assign(in.q.size(), 0.0);
    dk.assign(in.k.size(), 0.0);
    dv.assign(in.v.size(), 0.0);
    d_bias = Dense(run.d_bias);
  }
  for (size_t d = 0; d < run.c.lengths.size(); ++d) {
    for (int64_t i = 0; i < run.c.lengths[d]; ++i) {
      for (int64_t h = 0; h < run.c.heads; ++h) {
        const int64_t last = run.key_counts[d] - run.c.lengths[d] + i;
        const int64_t first = run.c.window == 0 ? 0 : std::max<int64_t>(0, last - run.c.window + 1);
        const int64_t end = run.c.causal ? last + 1 : run.key_counts[d];
        QueryRow(run, in,
                 {run.offsets[d] + i, h, run.key_begins[d] + first, run.key_begins[d] + end,
                  run.key_begins[d], run.key_begins[d] + last,
                  run.c.widths.empty() ? 0 : run.c.widths[d]});
      }
    }
  }
}

void Expected::QueryRow(const Attended& run, const AttentionInputs& in, const Place& at) {
  const int64_t D = run.c.D, kv_head = at.head / (run.c.heads / run.c.kv_heads);
  const double* q = &in.q[static_cast<size_t>(at.row * run.q.C() + at.head * D)];
  const auto key = [&](int64_t j) { return static_cast<size_t>(j * run.k.C() + kv_head * D); };
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0.0;
    for (int64_t c = 0; c < D; ++c) sum += a[c] * b[c];
    return sum;
  };
  const auto entry = [&](int64_t j) {
    if (at.width > 0) {  // By rows and columns that the two are apart.
      const int64_t i = at.position - at.document, k = j - at.document;
      const int64_t down = i / at.width - k / at.width, across = i % at.width - k % at.width;
      return static_cast<size_t>(at.head * run.c.bias + run.c.origin + down * run.c.pitch + across);
    }
    const int64_t entry = run.c.origin + at.position - j;
    return static_cast<size_t>(at.head * run.c.bias +
                               std::clamp<int64_t>(entry, 0, run.c.bias - 1));
  };
  std::vector<double> p, slope, m;
  double max = -INFINITY, sum = 0.0;
  for (int64_t j = at.first; j < at.end; ++j) {
    double s = run.scale * dot(q, &in.k[key(j)]);
    slope.push_back(run.scale);
    if (run.c.softcap > 0.0) {
      const double tanh = std::tanh(s / run.c.softcap);
      s = run.c.softcap * tanh;
      slope.back() *= 1.0 - tanh * tanh;
    }
    if (run.c.bias > 0) s += in.bias[entry(j)];
    p.push_back(s);
    m.push_back(run.Kept(at.row, at.head, j - at.document));
    max = std::max(max, s);
  }
  for (double& s : p) sum += s = std::exp(s - max);
  for (double& s : p) s /= sum;
  lse[static_cast<size_t>(at.row * run.c.heads + at.head)] = max + std::log(sum);
  double* out = &o[static_cast<size_t>(at.row * run.q.C() + at.head * D)];
  for (int64_t j = at.first; j < at.end; ++j) {
    for (int64_t c = 0; c < D; ++c)
      out[c] += m[static_cast<size_t>(j - at.first)] * p[static_cast<size_t>(j - at.first)] *
                in.v[key(j) + static_cast<size_t>(c)];
  }
  if (dq.empty()) return;
  std::vector<double> dO;
  for (int64_t c = 0; c < D; ++c) dO.push_back(run.dO.At(at.row, at.head * D + c));
  const double delta = dot(dO.data(), out);
  for (int64_t j = at.first; j < at.end; ++j) {
    const auto n = static_cast<size_t>(j - at.first);
    const double d_score = p[n] * (m[n] * dot(dO.data(), &in.v[key(j)]) - delta);
    if (run.c.bias > 0) d_bias[entry(j)] += d_score;
    const double ds = d_score * slope[n];
    for (int64_t c = 0; c < D; ++c) {
      const auto column = static_cast<size_t>(c);
      dv[key(j) + column] += m[n] * p[n] * dO[column];
      dk[key(j) + column] += ds * q[c];
      dq[static_cast<size_t>(at.row * run.q.C() + at.head * D + c)] += ds * in.k[key(j) + column];
    }
  }
}

void CheckAttentionForward(Attended& run, const Expected& expected) {
  run.Forward();
  ExpectNear(run, run.o, expected.o, "o");
  ExpectNear(run, run.lse, expected.lse, "lse");
}

void CheckAttentionBackward(Attended& run, const Expected& expected) {
  run.Backward();
  ExpectNear(run, run.dq, expected.dq, "dq");
  ExpectNear(run, run.dk, expected.dk, "dk");
  ExpectNear(run, run.dv, expected.dv, "dv");
  if (run.c.bias > 0) ExpectNear(run, run.d_bias, expected.d_bias, "d_bias");
}

void CheckAttention(const AttentionCase& c) {
  Attended run(c);
  const Expected expected(run);
  CheckAttentionForward(run, expected);
  CheckAttentionBackward(run, expected);
}

Reference DifferencesOfLoss(const Attended& run, std::vector<double> AttentionInputs::*input) {
  AttentionInputs in(run);
  const std::vector<double> dO = Dense(run.dO);
  return FiniteDifferences(in.*input, [&](const std::vector<double>& x) {
    in.*input = x;
    const Expected expected(run, in, false);
    double loss = 0.0;
    for (size_t n = 0; n < dO.size(); ++n) loss += expected.o[n] * dO[n];
    return loss;
  });
}

}  // namespace snug::kernels

// Attention forward + backward, 12 heads of 64: the own op against ATen's flash attention for the
// CPU, called per document as an op would, and against the rate of one large product. Flash has no
// window, so for windows it does all of T x T. It has no bias but as a T x T mask, so with a bias,
// whose gradient the own op gives as well, it runs without. GFLOPS counts what is visible, 14 D per
// pair.
//
// Expected on a core with AVX-512 (flash runs its products at half of the rate of fp32, multiplies
// the masked half below some 768 tokens, and converts bf16 as it goes): 0.35 of its time at 4 x
// 512, 0.45 at 2048, 0.06 for a window of 256 in 4096, 0.35 for mixed documents; GFLOPS at least
// 0.6 of the product's.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/attention.h"

namespace snug::kernels {
namespace {

constexpr int64_t kHeads = 12, kHeadWidth = 64, kWidth = kHeads * kHeadWidth;
constexpr float kScale = 0.125f;

struct Workload {
  const char* name;
  std::vector<int64_t> lengths;
  int64_t window;
  int64_t bias = 0;  // Entries.
};

const std::vector<Workload>& Workloads() {
  static const auto& workloads = *new std::vector<Workload>{
      {"4x512", {512, 512, 512, 512}, 0},
      {"1x2048", {2048}, 0},
      {"1x2048/bias", {2048}, 0, 2048},
      {"1x4096/window256", {4096}, 256},
      {"mixed16", {20, 411, 97, 33, 260, 64, 150, 12, 301, 88, 45, 190, 128, 72, 120, 57}, 0},
  };
  return workloads;
}

struct Tensors {
  at::Tensor q, k, v, o, dO, dq, dk, dv, lse;
  Tensors(int64_t tokens, at::ScalarType type) {
    at::manual_seed(1);
    for (at::Tensor* t : {&q, &k, &v, &o, &dO, &dq, &dk, &dv})
      *t = at::randn({tokens, kWidth}).to(type);
    lse = at::empty({tokens, kHeads});
  }
};

void OrDie(Error error) {
  if (error.ok()) return;
  std::cerr << ToString(error.code) << " " << error.parameter << "\n";
  std::abort();
}

double VisibleFlops(const Workload& w) {
  double pairs = 0.0;
  for (int64_t T : w.lengths) {
    for (int64_t i = 0; i < T; ++i)
      pairs += static_cast<double>(w.window == 0 ? i + 1 : std::min(i + 1, w.window));
  }
  return 14.0 * kHeadWidth * kHeads * pairs;
}

void Report(benchmark::State& state, double flops) {
  state.counters["GFLOPS"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<int64_t> OffsetsOf(const Workload& w) {
  std::vector<int64_t> offsets(w.lengths.size() + 1, 0);
  std::partial_sum(w.lengths.begin(), w.lengths.end(), offsets.begin() + 1);
  return offsets;
}

void Own(benchmark::State& state, const Workload& w, at::ScalarType type) {
  const std::vector<int64_t> offsets = OffsetsOf(w);
  Tensors t(offsets.back(), type);
  const at::Tensor bias = at::randn({kHeads, w.bias}), d_bias = at::zeros({kHeads, w.bias});
  const AttentionShape shape = {
      .heads = kHeads,
      .kv_heads = kHeads,
      .D = kHeadWidth,
      .documents = static_cast<int64_t>(w.lengths.size()),
      .query_offsets = offsets.data(),
      .window = w.window,
      .scale = kScale,
      .bias = {w.bias == 0 ? nullptr : bias.const_data_ptr<float>(), w.bias, w.bias},
      .dtype = type == at::kFloat ? DType::kF32 : DType::kBF16};
  AttentionSizes sizes = SizesOf(shape, at::get_num_threads());
  sizes.bias_entries = w.bias;
  const int64_t bytes = std::max(AttentionForwardBytes(sizes), AttentionBackwardBytes(sizes));
  at::Tensor workspace = at::empty({bytes / 4});
  for (auto _ : state) {
    OrDie(AttentionForward({.shape = shape,
                            .q = t.q.data_ptr(),
                            .k = t.k.data_ptr(),
                            .v = t.v.data_ptr(),
                            .o = t.o.data_ptr(),
                            .lse = t.lse.data_ptr<float>(),
                            .q_stride = kWidth,
                            .k_stride = kWidth,
                            .v_stride = kWidth,
                            .o_stride = kWidth,
                            .lse_stride = kHeads,
                            .workspace = workspace.data_ptr<float>(),
                            .workspace_bytes = bytes},
                           nullptr));
    OrDie(AttentionBackward({.shape = shape,
                             .dO = t.dO.data_ptr(),
                             .q = t.q.data_ptr(),
                             .k = t.k.data_ptr(),
                             .v = t.v.data_ptr(),
                             .o = t.o.data_ptr(),
                             .lse = t.lse.data_ptr<float>(),
                             .dq = t.dq.data_ptr(),
                             .dk = t.dk.data_ptr(),
                             .dv = t.dv.data_ptr(),
                             .d_bias = w.bias == 0 ? nullptr : d_bias.data_ptr<float>(),
                             .dO_stride = kWidth,
                             .q_stride = kWidth,
                             .k_stride = kWidth,
                             .v_stride = kWidth,
                             .o_stride = kWidth,
                             .lse_stride = kHeads,
                             .dq_stride = kWidth,
                             .dk_stride = kWidth,
                             .dv_stride = kWidth,
                             .d_bias_stride = w.bias,
                             .workspace = workspace.data_ptr<float>(),
                             .workspace_bytes = bytes},
                            nullptr));
  }
  Report(state, VisibleFlops(w));
}

void Flash(benchmark::State& state, const Workload& w, at::ScalarType type) {
  const std::vector<int64_t> offsets = OffsetsOf(w);
  Tensors t(offsets.back(), type);
  for (auto _ : state) {
    for (size_t d = 0; d < w.lengths.size(); ++d) {
      const auto part = [&](const at::Tensor& x) {
        return x.narrow(0, offsets[d], w.lengths[d])
            .view({1, w.lengths[d], kHeads, kHeadWidth})
            .transpose(1, 2);
      };
      const auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
          part(t.q), part(t.k), part(t.v), 0.0, true, std::nullopt, kScale);
      benchmark::DoNotOptimize(at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(t.dO), part(t.q), part(t.k), part(t.v), o, lse, 0.0, true, std::nullopt, kScale));
    }
  }
  Report(state, VisibleFlops(w));
}

// The rate that a large product reaches in this library and on this machine.
void Product(benchmark::State& state, at::ScalarType type) {
  constexpr int64_t kSize = 1024;
  const at::Tensor a = at::randn({kSize, kSize}).to(type), b = at::randn({kSize, kSize}).to(type);
  at::Tensor c = at::empty({kSize, kSize}, type);
  for (auto _ : state) at::mm_out(c, a, b);
  Report(state, 2.0 * kSize * kSize * kSize);
}

int RegisterAll() {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const std::string suffix = type == at::kFloat ? "/fp32" : "/bf16";
    benchmark::RegisterBenchmark(("product" + suffix).c_str(), Product, type)->UseRealTime();
    for (const Workload& w : Workloads()) {
      const std::string name = w.name + suffix;
      for (const auto& [who, body] : {std::pair{"own/", &Own}, std::pair{"flash/", &Flash}}) {
        benchmark::RegisterBenchmark((who + name).c_str(), body, w, type)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  return 0;
}

const int kRegistered = RegisterAll();

}  // namespace
}  // namespace snug::kernels

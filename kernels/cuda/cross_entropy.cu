// Softmax cross-entropy on CUDA: a block a row. A multiprocessor holds the first packs of its rows
// in registers (64 KiB of a row) and fetches the next row's while it writes the gradient. It reads
// what is beyond them a second time: so few rows are under way at once that this is from the cache,
// up to vocabularies of some 150,000 in bf16.
#include "kernels/cross_entropy.h"

#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/maximum.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"

namespace snug::kernels::cuda {
namespace {

// ---- what the softmax is taken of ---------------------------------------------------------------

struct Plain {
  __device__ float operator()(float logit) const { return logit; }
  __device__ float Slope(float) const { return 1.0f; }
};

struct Capped {
  float softcap;
  __device__ float operator()(float logit) const { return softcap * tanhf(logit / softcap); }
  // 1 - tanh^2, without cancellation.
  __device__ float Slope(float logit) const {
    const float e = expf(-2.0f * fabsf(logit / softcap)), inverse = 1.0f / (1.0f + e);
    return 4.0f * e * inverse * inverse;
  }
};

// ---- the first pass -----------------------------------------------------------------------------

// Below any logit, and finite, so that differences of two are no NaN.
constexpr float kNothing = -3.0e38f;

// Of the logits seen so far, in one pass (Milakov & Gimelshein 2018): sums are relative to the
// largest, and move with it.
struct Online {
  float max = kNothing;
  float sum = 0.0f;       // Of e = exp(x - max),
  float weighted = 0.0f;  // of e (x - max),
  float total = 0.0f;     // of x.
  float probe = 0.0f;     // NaN if any is not finite.
  float at_label = 0.0f;  // The label's, of the thread that has seen it.

  __device__ void MoveTo(float new_max) {
    if (new_max == max) return;
    const float factor = expf(max - new_max);
    weighted = factor == 0.0f ? 0.0f : factor * (weighted + sum * (max - new_max));
    sum *= factor;
    max = new_max;
  }
  // x: of these logits.
  template <bool kEntropy, int V>
  __device__ void See(const Floats<V>& x, const Floats<V>& logits) {
    float largest = max;
#pragma unroll
    for (int i = 0; i < V; ++i) largest = fmaxf(largest, x.at[i]);
    MoveTo(largest);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float below = x.at[i] - max, e = expf(below);
      sum += e;
      if (kEntropy) weighted += e == 0.0f ? 0.0f : e * below;
      total += x.at[i];
      probe += logits.at[i] * 0.0f;
    }
  }
};

// ---- a row --------------------------------------------------------------------------------------

// Negative: none. kBad: outside of the classes.
constexpr int64_t kBad = -2;
__device__ inline int64_t LabelOf(const CrossEntropyParams& p, int64_t row) {
  const int64_t label = IndexAt(p.labels, p.label_type, row);
  if (label == p.ignore_label) return -1;
  if (label >= 0 && label < p.V) return label;
  const bool masked = p.weights != nullptr && p.weights[row] == 0.0f;
  return masked && label < 0 ? -1 : kBad;
}

// Of a row: negative: it has one label alone. kBad: it is outside of the classes.
__device__ inline int64_t SecondLabelOf(const CrossEntropyParams& p, int64_t row, int64_t label) {
  if (p.second_labels == nullptr || label < 0) return -1;
  const int64_t second = IndexAt(p.second_labels, p.label_type, row);
  if (second < 0 || second == label) return -1;
  return second < p.V ? second : kBad;
}

// The thread that has a class, where packs are dealt out to all of them in turn.
__device__ inline bool IsMine(int64_t index, int V) {
  return index / V % blockDim.x == threadIdx.x;
}

// `told` becomes the second label's logit, by the thread that has it, before a gradient is written.
template <int V, typename T>
__device__ inline void TellSecond(int64_t second, const T* x, float& told) {
  if (second < 0) return;
  __syncthreads();  // All have read that of the row before.
  if (IsMine(second, V)) told = Widen(x[second]);
  __syncthreads();
}

struct Row {
  float max, factor, smooth;  // The gradient: exp(x - max) * factor - smooth,
  int64_t label;
  float d_label;   // the label's: this, each times the slope of the cap;
  float d_second;  // that of a second one.
};

// The logit of a row's second label, as the block has been told it, and the cap for it.
template <typename Cap>
struct Told {
  const float& logit;
  Cap cap;
};

// Of the block's sums: loss and figures, written by one thread; what the gradient needs, in each.
// What is known of a second label is read here, so that no register holds it while the row is seen.
template <bool kTwo, typename Cap>
__device__ inline Row Finish(const CrossEntropyParams& p, int64_t i, int64_t label,
                             const Told<Cap>& told, const Online& all) {
  const int64_t second = kTwo ? SecondLabelOf(p, i, label) : -1;
  const float second_logit = second < 0 ? 0.0f : told.logit;
  const double second_share = second < 0 ? 0.0 : 1.0 - static_cast<double>(p.shares[i]);
  const double nan = static_cast<double>(__int_as_float(0x7fffffff));
  const double given = p.weights == nullptr ? 1.0 : static_cast<double>(p.weights[i]);
  const bool bad = label == kBad || second == kBad;
  const double weight = bad ? nan : label < 0 ? 0.0 : given;
  const double sum = static_cast<double>(all.probe + all.sum), log_sum = log(sum);
  const double lse = log_sum + static_cast<double>(all.max);
  const double below =
      label < 0 ? 0.0 : static_cast<double>(all.at_label) - static_cast<double>(all.max);
  const double second_below =
      static_cast<double>(told.cap(second_logit)) - static_cast<double>(all.max);
  const double smoothing = static_cast<double>(p.label_smoothing);
  const double V = static_cast<double>(p.V), z_loss = static_cast<double>(p.z_loss);
  if (threadIdx.x == 0) {
    const double mean = static_cast<double>(all.total) / V - static_cast<double>(all.max);
    double target = below;
    if (second >= 0) target += second_share * (second_below - below);
    if (smoothing > 0.0) target += smoothing * (mean - target);
    p.row_loss[i] = weight * (log_sum - target + z_loss * lse * lse);
    if (p.row_entropy != nullptr) {
      p.row_entropy[i] = log_sum - static_cast<double>(all.weighted) / sum;
    }
    if (p.row_correct != nullptr) p.row_correct[i] = label >= 0 && below >= 0.0 ? 1 : 0;
  }
  const double scale = weight * static_cast<double>(p.scale), slope = 1.0 + 2.0 * z_loss * lse;
  const auto at = [&](double logit, double share) {
    const double there = exp(logit) / sum * slope - (1.0 - smoothing) * share - smoothing / V;
    return static_cast<float>(scale * there);
  };
  return {all.max,
          static_cast<float>(scale * slope / sum),
          static_cast<float>(scale * smoothing / V),
          label,
          at(below, 1.0 - second_share),
          second < 0 ? 0.0f : at(second_below, second_share) * told.cap.Slope(second_logit)};
}

// ---- the kernel ---------------------------------------------------------------------------------

// One block of so many threads fills a multiprocessor, or some smaller ones.
constexpr int kMostThreads = 512;
// Packs of a row that a thread holds: more would spill registers.
constexpr int kRowPacks = 8, kPacksOfTwo = 4;  // Of rows with one label; with two.

// Of the whole row, from what each thread has seen of it.
template <bool kEntropy>
__device__ inline Online Together(Online mine) {
  mine.MoveTo(BlockMax(mine.max));
  float sums[] = {mine.sum, mine.probe, mine.at_label, mine.total, mine.weighted};
  if (kEntropy) {
    BlockSums(sums);
    mine.weighted = sums[4];
  } else {
    float four[] = {sums[0], sums[1], sums[2], sums[3]};
    BlockSums(four);
    for (int k = 0; k < 4; ++k) sums[k] = four[k];
  }
  mine.sum = sums[0];
  mine.probe = sums[1];
  mine.at_label = sums[2];
  mine.total = sums[3];
  return mine;
}

template <bool kEntropy, typename T, int V, typename Cap>
__device__ inline void SeePack(Online& mine, const Pack<T, V>& pack, int64_t label_at, Cap cap) {
  const Floats<V> logits = Widen(pack);
  const Floats<V> capped = Each([&](float logit) { return cap(logit); }, logits);
  mine.See<kEntropy>(capped, logits);
  if (label_at < 0 || label_at >= V) return;
#pragma unroll
  for (int k = 0; k < V; ++k) mine.at_label = label_at == k ? capped.at[k] : mine.at_label;
}

template <typename T, int V, typename Cap>
__device__ inline void StoreGradient(T* dx, const Pack<T, V>& pack, const Row& row,
                                     int64_t label_at, Cap cap) {
  const Floats<V> logits = Widen(pack);
  Floats<V> gradient;
#pragma unroll
  for (int k = 0; k < V; ++k) {
    const float e = expf(cap(logits.at[k]) - row.max) * row.factor - row.smooth;
    gradient.at[k] = (label_at == k ? row.d_label : e) * cap.Slope(logits.at[k]);
  }
  Store(dx, gradient);
}

template <typename T, int V, typename Cap, bool kEntropy, bool kTwo>
__global__ void __launch_bounds__(kMostThreads, 1)
    CrossEntropyKernel(CrossEntropyParams p, Cap cap) {
  constexpr int kPacks = kTwo ? kPacksOfTwo : kRowPacks;
  const int64_t packs = p.V / V;
  const auto place = [&](int k) { return threadIdx.x + int64_t{k} * blockDim.x; };
  __shared__ float told;
  Pack<T, V> held[kPacks] = {};
  const auto fetch = [&](int64_t i, int k) {
    if (i >= p.N || place(k) >= packs) return;
    held[k] = LoadPack<V>(static_cast<const T*>(p.logits) + i * p.logits_stride + place(k) * V);
  };
#pragma unroll
  for (int k = 0; k < kPacks; ++k) fetch(blockIdx.x, k);
  for (int64_t i = blockIdx.x; i < p.N; i += gridDim.x) {
    const T* x = static_cast<const T*>(p.logits) + i * p.logits_stride;
    const int64_t label = LabelOf(p, i);
    if (kTwo) TellSecond<V>(SecondLabelOf(p, i, label), x, told);
    Online mine;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (place(k) < packs) SeePack<kEntropy>(mine, held[k], label - place(k) * V, cap);
    }
    for (int64_t pack = place(kPacks); pack < packs; pack += blockDim.x) {
      SeePack<kEntropy>(mine, LoadPack<V>(x + pack * V), label - pack * V, cap);
    }
    const Row row = Finish<kTwo>(p, i, label, Told<Cap>{told, cap}, Together<kEntropy>(mine));
    T* dx = static_cast<T*>(p.dlogits) + i * p.dlogits_stride;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (p.dlogits != nullptr && place(k) < packs) {
        StoreGradient(dx + place(k) * V, held[k], row, row.label - place(k) * V, cap);
      }
      fetch(i + gridDim.x, k);
    }
    if (p.dlogits == nullptr) continue;
    for (int64_t pack = place(kPacks); pack < packs; pack += blockDim.x) {
      StoreGradient(dx + pack * V, LoadPack<V>(x + pack * V), row, row.label - pack * V, cap);
    }
    if (!kTwo) continue;
    const int64_t second = SecondLabelOf(p, i, label);
    if (second >= 0 && IsMine(second, V)) Round(row.d_second, dx[second]);
  }
}

// *sum += the losses in their order, by one warp: what a lane has loaded, each adds in turn.
__global__ void __launch_bounds__(kWarp)
    AddLossesKernel(const double* losses, int64_t N, double* sum) {
  double total = __shfl_sync(~0u, threadIdx.x == 0 ? *sum : 0.0, 0);
  for (int64_t first = 0; first < N; first += kWarp) {
    const int64_t i = first + threadIdx.x;
    const double mine = i < N ? losses[i] : 0.0;
    const int lanes = static_cast<int>(min(N - first, int64_t{kWarp}));
    for (int lane = 0; lane < lanes; ++lane) total += __shfl_sync(~0u, mine, lane);
  }
  if (threadIdx.x == 0) *sum = total;
}

// The threads of a block depend on V alone, so that a row has the same bits whatever is beside it.
template <typename T, int V, typename Cap>
Error LaunchRowsOf(const CrossEntropyParams& p, Cap cap, Stream stream) {
  int threads = kWarp;
  while (threads < kMostThreads && threads * int64_t{kRowPacks} < p.V / V) threads *= 2;
  const int64_t at_once = Multiprocessors() * (kMostThreads / threads);
  const Grid grid = {p.N < at_once ? p.N : at_once, threads};
  if (p.second_labels == nullptr)
    return p.row_entropy == nullptr
               ? Launch(CrossEntropyKernel<T, V, Cap, false, false>, grid, stream, p, cap)
               : Launch(CrossEntropyKernel<T, V, Cap, true, false>, grid, stream, p, cap);
  return p.row_entropy == nullptr
             ? Launch(CrossEntropyKernel<T, V, Cap, false, true>, grid, stream, p, cap)
             : Launch(CrossEntropyKernel<T, V, Cap, true, true>, grid, stream, p, cap);
}

}  // namespace

Error CrossEntropy(const CrossEntropyParams& p, Stream stream) {
  const int64_t bytes = SizeOf(p.dtype);
  const Error error = ByPacks(
      p.dtype, p.V, {{p.logits, p.logits_stride, bytes}, {p.dlogits, p.dlogits_stride, bytes}},
      [&](auto t, auto v) {
        using T = decltype(t);
        constexpr int V = decltype(v)::value;
        return p.softcap == 0.0f ? LaunchRowsOf<T, V>(p, Plain{}, stream)
                                 : LaunchRowsOf<T, V>(p, Capped{p.softcap}, stream);
      });
  if (!error.ok() || p.loss_sum == nullptr || p.N == 0) return error;
  return Launch(AddLossesKernel, {1, kWarp}, stream, static_cast<const double*>(p.row_loss), p.N,
                p.loss_sum);
}

}  // namespace snug::kernels::cuda

#include "worker/train/measure_rates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "kernels/attention.h"
#include "worker/execute/gemm.h"
#include "worker/execute/ops/kernel_call.h"

namespace snug::train {
namespace {

using program::Limit;

// Of a model's linear layer: over a batch, and over the rows of a loop's pass.
constexpr int64_t kManyRows = 1024, kFewRows = 256, kWidth = 768, kMlpWidth = 2048;
constexpr int64_t kRank = 16;
// Far more than caches hold, so that it is memory that is measured.
constexpr int64_t kElements = 8 << 20;
constexpr int kRepeats = 3;

// The median: steps will meet what else runs as well.
double SecondsToRun(const std::function<void()>& run) {
  run();  // Prepared now: threads, packed operands, pages.
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

at::ScalarType TypeOf(program::DType dtype) {
  return dtype == program::DType::kBF16 ? at::kBFloat16 : at::kFloat;
}

// y = x W^T, as forwards have it, and dx = dy W.
double ProductSeconds(program::DType dtype, int64_t rows, int64_t in_width, int64_t out_width) {
  const at::Tensor x = at::ones({rows, in_width}, TypeOf(dtype));
  const at::Tensor dy = at::ones({rows, out_width}, TypeOf(dtype));
  const at::Tensor w = at::ones({out_width, in_width}, TypeOf(dtype));
  at::Tensor y = at::empty({rows, out_width}, at::kFloat), dx = at::empty_like(x, at::kFloat);
  const execute::GemmCall forward{.a = x.data_ptr(),
                                  .b = w.data_ptr(),
                                  .c = y.data_ptr(),
                                  .m = rows,
                                  .n = out_width,
                                  .k = in_width,
                                  .a_stride = in_width,
                                  .b_stride = in_width,
                                  .c_stride = out_width,
                                  .b_transposed = true,
                                  .dtype = dtype};
  const execute::GemmCall backward{.a = dy.data_ptr(),
                                   .b = w.data_ptr(),
                                   .c = dx.data_ptr(),
                                   .m = rows,
                                   .n = in_width,
                                   .k = out_width,
                                   .a_stride = out_width,
                                   .b_stride = in_width,
                                   .c_stride = in_width,
                                   .dtype = dtype};
  return SecondsToRun([&] {
    execute::Gemm(forward);
    execute::Gemm(backward);
  });
}

// Into an MLP and out of it.
double MlpSeconds(program::DType dtype, int64_t rows) {
  return ProductSeconds(dtype, rows, kWidth, kMlpWidth) +
         ProductSeconds(dtype, rows, kMlpWidth, kWidth);
}

// What is the same however many rows there are is the matrices'. Where it was lost in noise they
// cost next to nothing, and never more than the rows of a pass.
void MeasureProducts(program::DType dtype, program::Rates& rates) {
  constexpr double kElements = 4.0 * kWidth * kMlpWidth;  // Of the matrices of four products.
  constexpr double kTimes = static_cast<double>(kManyRows) / kFewRows;
  const double many = MlpSeconds(dtype, kManyRows);
  const double few = std::clamp(MlpSeconds(dtype, kFewRows), many / kTimes, 2.0 * many / kTimes);
  const double of_rows = (many - few) / (kManyRows - kFewRows);
  const double of_matrices = std::max(few - kFewRows * of_rows, 1e-3 * few);
  rates[Limit::kProducts] = 2.0 * kElements / of_rows;
  rates[Limit::kMatrices] = kElements * static_cast<double>(program::SizeOf(dtype)) / of_matrices;
  const double narrow = ProductSeconds(dtype, kManyRows, kWidth, kRank) +
                        ProductSeconds(dtype, kManyRows, kRank, kWidth);
  rates[Limit::kNarrow] = 8.0 * kManyRows * kWidth * kRank / narrow;
}

// Forward and backward of documents as most are, by the flops that plans count: 4 and 10 of each
// visible pair and head and column.
double AttentionFlopsPerSecond(program::DType dtype) {
  constexpr int64_t kHeads = 12, kHeadWidth = 64, kDocuments = 2, kLength = 512;
  constexpr int64_t kTokens = kDocuments * kLength, kColumns = kHeads * kHeadWidth;
  const std::vector<int64_t> offsets = {0, kLength, kTokens};
  const kernels::AttentionShape shape{
      .heads = kHeads,
      .kv_heads = kHeads,
      .D = kHeadWidth,
      .documents = kDocuments,
      .query_offsets = offsets.data(),
      .scale = 0.125f,
      .dtype = dtype == program::DType::kBF16 ? kernels::DType::kBF16 : kernels::DType::kF32};
  const at::Tensor q = at::ones({kTokens, kColumns}, TypeOf(dtype));
  at::Tensor o = at::empty_like(q), dq = at::empty_like(q), dk = at::empty_like(q),
             dv = at::empty_like(q), lse = at::empty({kTokens, kHeads});
  const kernels::AttentionSizes sizes = kernels::SizesOf(shape, at::get_num_threads());
  const int64_t bytes =
      std::max(kernels::AttentionForwardBytes(sizes), kernels::AttentionBackwardBytes(sizes));
  at::Tensor workspace = at::empty({bytes / static_cast<int64_t>(sizeof(float))});
  const kernels::AttentionForwardParams forward{.shape = shape,
                                                .q = q.data_ptr(),
                                                .k = q.data_ptr(),
                                                .v = q.data_ptr(),
                                                .o = o.data_ptr(),
                                                .lse = lse.data_ptr<float>(),
                                                .q_stride = kColumns,
                                                .k_stride = kColumns,
                                                .v_stride = kColumns,
                                                .o_stride = kColumns,
                                                .lse_stride = kHeads,
                                                .workspace = workspace.data_ptr<float>(),
                                                .workspace_bytes = bytes};
  const kernels::AttentionBackwardParams backward{.shape = shape,
                                                  .dO = q.data_ptr(),
                                                  .q = q.data_ptr(),
                                                  .k = q.data_ptr(),
                                                  .v = q.data_ptr(),
                                                  .o = o.data_ptr(),
                                                  .lse = lse.data_ptr<float>(),
                                                  .dq = dq.data_ptr(),
                                                  .dk = dk.data_ptr(),
                                                  .dv = dv.data_ptr(),
                                                  .dO_stride = kColumns,
                                                  .q_stride = kColumns,
                                                  .k_stride = kColumns,
                                                  .v_stride = kColumns,
                                                  .o_stride = kColumns,
                                                  .lse_stride = kHeads,
                                                  .dq_stride = kColumns,
                                                  .dk_stride = kColumns,
                                                  .dv_stride = kColumns,
                                                  .workspace = workspace.data_ptr<float>(),
                                                  .workspace_bytes = bytes};
  const double seconds = SecondsToRun([&] {
    execute::Check("AttentionForward", kernels::AttentionForward(forward, nullptr));
    execute::Check("AttentionBackward", kernels::AttentionBackward(backward, nullptr));
  });
  constexpr double kPairs = 0.5 * kDocuments * kLength * (kLength + 1);
  return 14.0 * kPairs * kColumns / seconds;
}

// y = a + b: as most of what is no product, it reads more than it writes.
double BytesPerSecond() {
  const at::Tensor a = at::ones({kElements}, at::kFloat), b = at::ones({kElements}, at::kFloat);
  at::Tensor y = at::empty({kElements}, at::kFloat);
  constexpr double kBytes = 3.0 * sizeof(float) * kElements;
  return kBytes / SecondsToRun([&] { at::add_out(y, a, b); });
}

}  // namespace

program::MachineRates MeasureRates() {
  program::MachineRates machine;
  const double bytes_per_s = BytesPerSecond();
  const auto measure = [&](program::DType dtype, program::Rates& rates) {
    MeasureProducts(dtype, rates);
    rates[Limit::kAttention] = AttentionFlopsPerSecond(dtype);
    rates[Limit::kPasses] = rates[Limit::kCopies] = bytes_per_s;
  };
  measure(program::DType::kF32, machine.f32);
  measure(program::DType::kBF16, machine.bf16);
  return machine;
}

}  // namespace snug::train

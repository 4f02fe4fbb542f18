#include "worker/train/measure_rates.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/gemm.h"
#include "worker/execute/host_buffer.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/ops/kernel_call.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/op_table.h"
#include "worker/train/small_step.h"
#include "worker/train/timing.h"

namespace snug::train {
namespace {

using program::Limit;

// Of a model's linear layer: over a batch, and over the rows of a loop's pass.
constexpr int64_t kManyRows = 1024, kFewRows = 256, kWidth = 768, kMlpWidth = 2048;
constexpr int64_t kRank = 16;
// Far more than caches hold, so that it is memory that is measured.
constexpr int64_t kElements = 8 << 20, kCopyBytes = 4 * kElements;

at::ScalarType TypeOf(program::DType dtype) {
  return dtype == program::DType::kBF16 ? at::kBFloat16 : at::kFloat;
}

using Runs = std::function<void()>;

Timing Timed(Runs runs) {
  return Timing([runs = std::move(runs)] { return execute::CatchTorch(runs); });
}

// Rows of a times b into c.
execute::GemmCall Product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                          bool b_transposed) {
  const bool bf16 = a.scalar_type() == at::kBFloat16;
  return {.a = a.data_ptr(),
          .b = b.data_ptr(),
          .c = c.data_ptr(),
          .m = c.size(0),
          .n = c.size(1),
          .k = a.size(1),
          .a_stride = a.size(1),
          .b_stride = b.size(1),
          .c_stride = c.size(1),
          .b_transposed = b_transposed,
          .dtype = bf16 ? program::DType::kBF16 : program::DType::kF32};
}

// y = x W^T, as forwards have it, and dx = dy W.
Runs Products(program::DType dtype, int64_t rows, int64_t in_width, int64_t out_width) {
  const at::Tensor x = at::ones({rows, in_width}, TypeOf(dtype));
  const at::Tensor dy = at::ones({rows, out_width}, TypeOf(dtype));
  const at::Tensor w = at::ones({out_width, in_width}, TypeOf(dtype));
  const at::Tensor y = at::empty({rows, out_width}), dx = at::empty({rows, in_width});
  return [=] {
    execute::Gemm(Product(x, w, y, /*b_transposed=*/true));
    execute::Gemm(Product(dy, w, dx, /*b_transposed=*/false));
  };
}

Runs Both(const Runs& one, const Runs& other) {
  return [=] {
    one();
    other();
  };
}

// Into a layer of this width, and out of it.
Runs InAndOut(program::DType dtype, int64_t rows, int64_t width) {
  return Both(Products(dtype, rows, kWidth, width), Products(dtype, rows, width, kWidth));
}

// Forward and backward of documents as most are.
constexpr int64_t kHeads = 12, kHeadWidth = 64, kDocuments = 2, kLength = 512;
constexpr int64_t kTokens = kDocuments * kLength, kColumns = kHeads * kHeadWidth;
constexpr int64_t kOffsets[] = {0, kLength, kTokens};

Runs Attention(program::DType dtype) {
  const kernels::AttentionShape shape{
      .heads = kHeads,
      .kv_heads = kHeads,
      .D = kHeadWidth,
      .documents = kDocuments,
      .query_offsets = kOffsets,
      .scale = 0.125f,
      .dtype = dtype == program::DType::kBF16 ? kernels::DType::kBF16 : kernels::DType::kF32};
  at::Tensor q = at::ones({kTokens, kColumns}, TypeOf(dtype));
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
  const std::vector<at::Tensor> held = {q, o, dq, dk, dv, lse, workspace};
  return [forward, backward, held] {
    execute::Check("AttentionForward", kernels::AttentionForward(forward, nullptr));
    execute::Check("AttentionBackward", kernels::AttentionBackward(backward, nullptr));
  };
}

// y = a + b: as most of what is no product, it reads more than it writes.
Runs Pass() {
  const at::Tensor a = at::ones({kElements}, at::kFloat), b = at::ones({kElements}, at::kFloat);
  at::Tensor y = at::empty({kElements}, at::kFloat);
  return [=]() mutable { at::add_out(y, a, b); };
}

// Of one dtype.
struct Timings {
  explicit Timings(program::DType type)
      : dtype(type),
        many(Timed(InAndOut(type, kManyRows, kMlpWidth))),
        few(Timed(InAndOut(type, kFewRows, kMlpWidth))),
        narrow(Timed(InAndOut(type, kManyRows, kRank))),
        attention(Timed(Attention(type))) {}
  std::vector<Timing*> all() { return {&many, &few, &narrow, &attention}; }

  program::DType dtype;
  Timing many, few, narrow, attention;
};

// What is the same however many rows there are is the matrices'. Where it was lost in noise they
// cost next to nothing, and never more than the rows of a pass.
program::Rates RatesOf(const Timings& timings, double bytes_per_s) {
  constexpr double kOfMatrices = 4.0 * kWidth * kMlpWidth;  // Elements: of four products.
  constexpr double kTimes = static_cast<double>(kManyRows) / kFewRows;
  const double many = timings.many.seconds();
  const double few = std::clamp(timings.few.seconds(), many / kTimes, 2.0 * many / kTimes);
  const double of_rows = (many - few) / (kManyRows - kFewRows);
  const double of_matrices = std::max(few - kFewRows * of_rows, 1e-3 * few);
  program::Rates rates;
  rates[Limit::kProducts] = 2.0 * kOfMatrices / of_rows;
  rates[Limit::kMatrices] =
      kOfMatrices * static_cast<double>(program::SizeOf(timings.dtype)) / of_matrices;
  rates[Limit::kNarrow] = 8.0 * kManyRows * kWidth * kRank / timings.narrow.seconds();
  // By the flops that plans count: 4 and 10 of each visible pair and head and column.
  constexpr double kPairs = 0.5 * kDocuments * kLength * (kLength + 1);
  rates[Limit::kAttention] = 14.0 * kPairs * kColumns / timings.attention.seconds();
  rates[Limit::kPasses] = bytes_per_s;
  return rates;
}

// What any device needs the host for: runs are started, and values copied, on the stream that tapes
// copy on.
class HostTimings {
 public:
  static absl::StatusOr<std::unique_ptr<HostTimings>> Prepare(execute::Device& device) {
    std::unique_ptr<HostTimings> timings(new HostTimings(device));
    ASSIGN_OR_RETURN(timings->step_, SmallStep::Prepare(device));
    ASSIGN_OR_RETURN(timings->memory_, execute::DeviceBuffer::Allocate(device, kCopyBytes));
    ASSIGN_OR_RETURN(timings->host_, execute::HostBuffer::Allocate(device, kCopyBytes));
    RETURN_IF_ERROR(execute::FillMemory(device, timings->memory_.data(), 0, kCopyBytes));
    return timings;
  }

  std::vector<Timing*> all() { return {&starts_, &to_host_, &from_host_}; }

  // Of the small step's time, what its work does not explain by `rates`, by which starts take none
  // yet, is that of starting its runs: a tenth at least, where those rates were measured in slower
  // moments. Of a GPU it is all: the work is hidden behind it.
  void SetRatesOfHost(const program::Machine& machine, program::Rates& rates) const {
    constexpr double kLeastShare = 0.1;
    const program::Work work = step_->work();
    const double seconds = starts_.seconds();
    const double works = machine.cpu ? program::SecondsOf(work, {.rates = rates}) : 0.0;
    rates[Limit::kRuns] = work[Limit::kRuns] / std::max(seconds - works, kLeastShare * seconds);
    rates[Limit::kToHost] = kCopyBytes / to_host_.seconds();
    rates[Limit::kFromHost] = kCopyBytes / from_host_.seconds();
  }

 private:
  explicit HostTimings(execute::Device& device) : device_(device) {}

  absl::Status Copy(void* to, const void* from) {
    RETURN_IF_ERROR(execute::CatchTorch(
        [&] { device_.CopyAsync(to, from, kCopyBytes, program::kCopyStream); }));
    return device_.Synchronize();
  }

  execute::Device& device_;
  std::unique_ptr<SmallStep> step_;
  execute::DeviceBuffer memory_;
  execute::HostBuffer host_;
  Timing starts_{[this] { return step_->Run(); }};
  Timing to_host_{[this] { return Copy(host_.data(), memory_.data()); }};
  Timing from_host_{[this] { return Copy(memory_.data(), host_.data()); }};
};

}  // namespace

absl::StatusOr<program::MachineRates> MeasureRates(execute::Device& device) {
  const program::Machine machine = device.machine();
  program::MachineRates rates = {.f32 = {.per_second = {}}, .bf16 = {.per_second = {}}};
  ASSIGN_OR_RETURN(const std::unique_ptr<HostTimings> host, HostTimings::Prepare(device));
  if (machine.cpu) {
    Timings f32(program::DType::kF32), bf16(program::DType::kBF16);
    Timing pass = Timed(Pass());
    RETURN_IF_ERROR(RunInTurns({f32.all(), bf16.all(), host->all(), {&pass}}));
    const double bytes_per_s = 3.0 * sizeof(float) * kElements / pass.seconds();
    rates = {.f32 = RatesOf(f32, bytes_per_s), .bf16 = RatesOf(bf16, bytes_per_s)};
  } else {
    RETURN_IF_ERROR(RunInTurns({host->all()}));
  }
  host->SetRatesOfHost(machine, rates.f32);
  for (const Limit limit : {Limit::kToHost, Limit::kFromHost, Limit::kRuns})
    rates.bf16[limit] = rates.f32[limit];
  return rates;
}

}  // namespace snug::train

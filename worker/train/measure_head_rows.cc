#include "worker/train/measure_head_rows.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <vector>

#include "proto/snug/status_macros.h"
#include "worker/execute/host_copy.h"
#include "worker/execute/torch_errors.h"
#include "worker/program/head_rows.h"
#include "worker/train/timing.h"

namespace snug::train {
namespace {

using execute::DeviceBuffer;
using program::kHeadRowChoices;

constexpr program::DType kType = program::DType::kBF16;
constexpr int kStream = 0;
constexpr int64_t kRows = kHeadRowChoices.back();  // That each choice goes over,
constexpr int kTimes = 4;                          // so often: some 4 ms on an H100.

// The head's products over kRows rows, some at a time.
class HeadProducts {
 public:
  static absl::StatusOr<std::unique_ptr<HeadProducts>> Prepare(execute::Device& gpu,
                                                               const HeadSlice& slice) {
    std::unique_ptr<HeadProducts> products(new HeadProducts(gpu, slice));
    RETURN_IF_ERROR(products->Take(slice.vocabulary * slice.width, products->weight_));
    RETURN_IF_ERROR(products->Take(kRows * slice.width, products->z_));
    RETURN_IF_ERROR(products->Take(kRows * slice.width, products->dz_));
    RETURN_IF_ERROR(products->Take(kRows * slice.vocabulary, products->logits_));
    return products;
  }

  // In passes over so many rows.
  absl::Status Run(int64_t rows, int64_t rows_of_pass) {
    RETURN_IF_ERROR(execute::CatchTorch([&] {
      for (int64_t first = 0; first < rows; first += rows_of_pass)
        Pass(first % kRows, rows_of_pass);
    }));
    return gpu_.Synchronize();
  }

 private:
  HeadProducts(execute::Device& gpu, const HeadSlice& slice) : gpu_(gpu), slice_(slice) {}

  // Numbers that are no zeros, which a GPU would multiply with less power.
  absl::Status Take(int64_t elements, DeviceBuffer& buffer) {
    constexpr int kByte = 0x3c;  // Twice: 0.0115.
    const int64_t bytes = elements * program::SizeOf(kType);
    ASSIGN_OR_RETURN(buffer, DeviceBuffer::Allocate(gpu_, bytes));
    return execute::FillMemory(gpu_, buffer.data(), kByte, bytes);
  }

  // As in a step, the logits of each pass lie where those of the one before did.
  void Pass(int64_t first, int64_t rows) {
    const int64_t at = first * slice_.width * program::SizeOf(kType);
    execute::GemmCall forward{.a = z_.data() + at, .b = weight_.data(), .c = logits_.data()};
    forward.m = rows;
    forward.n = forward.c_stride = slice_.vocabulary;
    forward.k = forward.a_stride = forward.b_stride = slice_.width;
    forward.b_transposed = true;
    forward.dtype = forward.c_dtype = kType;
    gpu_.Multiply(forward, kStream);
    execute::GemmCall back{.a = logits_.data(), .b = weight_.data(), .c = dz_.data() + at};
    back.m = rows;
    back.n = back.b_stride = back.c_stride = slice_.width;
    back.k = back.a_stride = slice_.vocabulary;
    back.dtype = back.c_dtype = kType;
    gpu_.Multiply(back, kStream);
  }

  execute::Device& gpu_;
  const HeadSlice slice_;
  DeviceBuffer weight_, z_, dz_, logits_;
};

// On an emulated GPU the whole would take hours: small products tell. The first one of a real GPU
// loads its kernels, and one may meet a slow moment.
absl::Status CheckFast(execute::Device& gpu, const HeadSlice& slice) {
  constexpr int64_t kSide = 256, kFewRows = 64;
  constexpr std::chrono::milliseconds kSlow(5);  // An H100 takes 20 us.
  constexpr int kTries = 5;
  ASSIGN_OR_RETURN(const std::unique_ptr<HeadProducts> products,
                   HeadProducts::Prepare(gpu, {.width = std::min(slice.width, kSide),
                                               .vocabulary = std::min(slice.vocabulary, kSide)}));
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(products->Run(kFewRows, kFewRows));
    if (std::chrono::steady_clock::now() - start < kSlow) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      "rows of the head: the products of 64 rows by a matrix of 256 x 256 take more than 5 ms");
}

}  // namespace

absl::StatusOr<int32_t> MeasureHeadRows(execute::Device& gpu, const HeadSlice& slice) {
  RETURN_IF_ERROR(CheckFast(gpu, slice));
  ASSIGN_OR_RETURN(const std::unique_ptr<HeadProducts> products, HeadProducts::Prepare(gpu, slice));
  std::vector<Timing> timings;
  for (const int32_t rows : kHeadRowChoices)
    timings.emplace_back([&products, rows] { return products->Run(kTimes * kRows, rows); });
  std::vector<Timing*> all;
  for (Timing& timing : timings) all.push_back(&timing);
  RETURN_IF_ERROR(RunInTurns({all}));
  std::array<double, kHeadRowChoices.size()> seconds_per_row = {};
  for (size_t i = 0; i < seconds_per_row.size(); ++i)
    seconds_per_row[i] = timings[i].seconds() / (kTimes * kRows);
  return program::FewestFastHeadRows(seconds_per_row);
}

}  // namespace snug::train

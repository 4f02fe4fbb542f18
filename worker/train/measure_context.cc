#include "worker/train/measure_context.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include "absl/strings/str_cat.h"
#include "worker/execute/gemm.h"

namespace snug::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

// Small enough to leave no mark itself, large enough to start every thread.
void WarmUp(at::ScalarType dtype) {
  const at::Tensor a = at::ones({128, 128}, dtype);
  at::mm(a, a);
}

// The highest resident size of this process so far, rounded up to MiB.
int64_t ContextBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // Linux counts KiB. The products measured are too small for the largest buffers.
  const int64_t bytes = usage.ru_maxrss * 1024 + at::get_num_threads() * execute::kGemmBufferBytes;
  return (bytes + kMiB - 1) / kMiB * kMiB;
}

}  // namespace

std::string NodeFactsText() {
  WarmUp(at::kFloat);
  WarmUp(at::kBFloat16);
  const execute::GemmChoice choice = execute::MeasureGemmChoice();  // Runs them all.
  return absl::StrCat("{\"context_bytes\": ", ContextBytes(), ", \"products\": \"",
                      execute::GemmChoiceText(choice), "\"}");
}

}  // namespace snug::train

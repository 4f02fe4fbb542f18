#include "worker/train/measure_context.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/gemm.h"
#include "worker/execute/gpu/measure_context.h"
#include "worker/train/measure_rates.h"

namespace snug::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t WholeMiB(int64_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

// In whole millions a second: more digits than were measured.
std::string RatesText(const program::Rates& rates) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < program::kLimits; ++i)
    texts.push_back(
        absl::StrFormat("\"%s\": %.0fe6", program::kLimitNames[i], rates.per_second[i] / 1e6));
  return absl::StrCat("{", absl::StrJoin(texts, ", "), "}");
}

std::string RatesText(const program::MachineRates& rates) {
  return absl::StrCat("{\"fp32\": ", RatesText(rates.f32), ", \"bf16\": ", RatesText(rates.bf16),
                      "}");
}

// No rates: nothing was measured.
std::string FactsText(int64_t context_bytes, const std::string& products,
                      const std::string& rates) {
  return absl::StrCat("{\"context_bytes\": ", WholeMiB(context_bytes), ", \"products\": \"",
                      products, "\"", rates.empty() ? "" : ", \"rates\": ", rates, "}");
}

// Small enough to leave no mark itself, large enough to start every thread.
void WarmUp(at::ScalarType dtype) {
  const at::Tensor a = at::ones({128, 128}, dtype);
  at::mm(a, a);
}

// The highest resident size of this process so far.
int64_t ContextBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  // Linux counts KiB. The products measured are too small for the largest buffers.
  return usage.ru_maxrss * 1024 + at::get_num_threads() * execute::kGemmBufferBytes;
}

}  // namespace

std::string NodeFactsText() {
  WarmUp(at::kFloat);
  WarmUp(at::kBFloat16);
  const execute::GemmChoice choice = execute::MeasureGemmChoice();  // Runs them all.
  const int64_t context_bytes = ContextBytes();  // Before anything larger is held.
  execute::UseGemmChoice(choice);
  return FactsText(context_bytes, execute::GemmChoiceText(choice), RatesText(MeasureRates()));
}

absl::StatusOr<std::string> DeviceFactsText(const std::string& device) {
  if (absl::StartsWith(device, "cpu:")) return NodeFactsText();
  if (execute::GpuContextBytes == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat("device \"", device, "\": this worker is built without GPUs"));
  ASSIGN_OR_RETURN(const int64_t bytes, execute::GpuContextBytes(device));
  return FactsText(bytes, "", "");
}

}  // namespace snug::train

#include "worker/train/measure_context.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/resource.h>

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "proto/snug/status_macros.h"
#include "worker/execute/cpu_device.h"
#include "worker/execute/device.h"
#include "worker/execute/gemm.h"
#include "worker/execute/gpu/measure_context.h"
#include "worker/train/load_kernels.h"
#include "worker/train/measure_head_rows.h"
#include "worker/train/measure_rates.h"

namespace snug::train {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t WholeMiB(int64_t bytes) { return (bytes + kMiB - 1) / kMiB * kMiB; }

// Those that were measured, with more digits than that gives.
std::string RatesText(const program::Rates& rates) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < program::kLimits; ++i) {
    const double rate = rates.per_second[i];
    if (rate > 0.0) texts.push_back(absl::StrFormat("\"%s\": %.6g", program::kLimitNames[i], rate));
  }
  return absl::StrCat("{", absl::StrJoin(texts, ", "), "}");
}

std::string RatesText(const program::MachineRates& rates) {
  const std::string head =
      rates.head_rows > 0 ? absl::StrCat(", \"head_rows\": ", rates.head_rows) : "";
  return absl::StrCat("{\"fp32\": ", RatesText(rates.f32), ", \"bf16\": ", RatesText(rates.bf16),
                      head, "}");
}

std::string FactsText(const execute::ChildMemory& context, const std::string& products,
                      const program::MachineRates& rates) {
  return absl::StrCat("{\"context_bytes\": ", WholeMiB(context.taken_bytes),
                      ", \"unseen_bytes\": ", context.unseen_bytes, ", \"products\": \"", products,
                      "\", \"rates\": ", RatesText(rates), "}");
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

absl::StatusOr<std::string> CpuFactsText() {
  WarmUp(at::kFloat);
  WarmUp(at::kBFloat16);
  const execute::GemmChoice choice = execute::MeasureGemmChoice();  // Runs them all.
  const int64_t context_bytes = ContextBytes();  // Before anything larger is held.
  execute::UseGemmChoice(choice);
  execute::CpuDevice cpu(at::get_num_threads());
  ASSIGN_OR_RETURN(const program::MachineRates rates, MeasureRates(cpu));
  return FactsText({.taken_bytes = context_bytes}, execute::GemmChoiceText(choice), rates);
}

// Adds what can be measured now. Where something cannot, what its kind has stands in its place.
absl::Status MeasureGpu(const std::string& device, program::MachineRates& rates) {
  ASSIGN_OR_RETURN(const auto gpu, execute::OpenDevice(device, /*threads=*/1));
  ASSIGN_OR_RETURN(rates, MeasureRates(*gpu));
  ASSIGN_OR_RETURN(rates.head_rows, MeasureHeadRows(*gpu));
  return absl::OkStatus();
}

program::MachineRates RatesOfGpu(const std::string& device) {
  program::MachineRates rates = {.f32 = {.per_second = {}}, .bf16 = {.per_second = {}}};
  const absl::Status measured = MeasureGpu(device, rates);
  if (!measured.ok())
    std::cerr << device << ": its speed was not measured in full: " << measured.message() << "\n";
  return rates;
}

}  // namespace

absl::StatusOr<std::string> DeviceFactsText(const std::string& device) {
  if (absl::StartsWith(device, "cpu:")) return CpuFactsText();
  if (execute::GpuContextBytes == nullptr)
    return absl::FailedPreconditionError(
        absl::StrCat("device \"", device, "\": this worker is built without GPUs"));
  ASSIGN_OR_RETURN(const execute::ChildMemory context,
                   execute::GpuContextBytes(device, &LoadKernels));
  return FactsText(context, "", RatesOfGpu(device));  // Behind the fork.
}

}  // namespace snug::train

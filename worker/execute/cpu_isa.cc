#include "worker/execute/cpu_isa.h"

#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/instruction_set.h"

namespace snug::execute {
namespace {

constexpr char kVariable[] = "SNUG_CPU_ISA";

// What the libraries call the same.
struct Isa {
  const char* name;
  const char* onednn;
  const char* mkl;
  const char* aten;
};

constexpr Isa kSets[] = {
    {"baseline", "SSE41", "SSE4_2", "default"},
    {"avx2", "AVX2", "AVX2", "avx2"},
    {"avx512", "AVX512_CORE", "AVX512", "avx512"},
    {"avx512bf16", "AVX512_CORE_BF16", "AVX512", "avx512"},
};

}  // namespace

absl::Status UseCpuIsaOfEnvironment() {
  const char* name = std::getenv(kVariable);
  if (name == nullptr) return absl::OkStatus();
  const kernels::Error error = kernels::UseInstructionSet(name);
  if (error.code == kernels::ErrorCode::kNoDevice)
    return absl::FailedPreconditionError(
        absl::StrCat(kVariable, ": this CPU or this build has no ", name));
  if (!error.ok())
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, ": \"", name, "\" is none of baseline, avx2, avx512, avx512bf16"));
  for (const Isa& isa : kSets) {
    if (std::strcmp(isa.name, name) != 0) continue;
    setenv("ONEDNN_MAX_CPU_ISA", isa.onednn, /*overwrite=*/0);
    setenv("MKL_ENABLE_INSTRUCTIONS", isa.mkl, 0);
    setenv("ATEN_CPU_CAPABILITY", isa.aten, 0);
  }
  return absl::OkStatus();
}

}  // namespace snug::execute

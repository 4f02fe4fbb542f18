#include "worker/execute/gemm.h"

#include <algorithm>
#include <stdexcept>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/execute/gemm/paths.h"

namespace snug::execute {
namespace {

// In the order of GemmPath, which is also the order in which they stand in for one another.
constexpr PathFunction kPaths[kGemmPaths] = {OneDnnGemm, AtenGemm, ConvertedGemm};

constexpr absl::string_view kVersion = "1:";
constexpr char kFirstLetter = 'a';

GemmChoice& InUse() {
  static GemmChoice choice = GemmChoice::Default();
  return choice;
}

bool& MayTakeTf32() {
  static bool may = false;
  return may;
}

}  // namespace

int GemmKind(const GemmCall& call) {
  const int shape = std::min({call.m, call.n, call.k}) < program::kNarrowSide ? 1 : 0;
  const int form = call.a_transposed ? 2 : call.b_transposed ? 1 : 0;
  return (static_cast<int>(call.dtype) * kGemmShapes + shape) * kGemmForms + form;
}

GemmChoice GemmChoice::Default() {
  GemmChoice choice;
  choice.path.fill(GemmPath::kOneDnn);
  return choice;
}

void UseGemmChoice(const GemmChoice& choice) { InUse() = choice; }

const GemmChoice& GemmChoiceInUse() { return InUse(); }

void UseTf32(bool use) { MayTakeTf32() = use; }

bool Tf32InUse() { return MayTakeTf32(); }

void Gemm(const GemmCall& call) {
  if (call.m == 0 || call.n == 0 || call.k == 0) return;
  if (call.c_dtype != program::DType::kF32) throw std::runtime_error("a product into bf16");
  const auto chosen = static_cast<size_t>(InUse().path[static_cast<size_t>(GemmKind(call))]);
  if (kPaths[chosen](call)) return;
  for (size_t i = 0; i < kGemmPaths; ++i) {
    if (i != chosen && kPaths[i](call)) return;
  }
  throw std::runtime_error(
      absl::StrCat("no path for a product of ", call.m, " x ", call.k, " and ", call.n));
}

std::string GemmChoiceText(const GemmChoice& choice) {
  std::string text(kVersion);
  for (GemmPath path : choice.path)
    text += static_cast<char>(kFirstLetter + static_cast<int>(path));
  return text;
}

absl::StatusOr<GemmChoice> ParseGemmChoice(absl::string_view text) {
  GemmChoice choice;
  const bool fits = text.size() == kVersion.size() + kGemmKinds && absl::StartsWith(text, kVersion);
  for (size_t i = 0; fits && i < choice.path.size(); ++i) {
    const int path = text[kVersion.size() + i] - kFirstLetter;
    if (path < 0 || path >= kGemmPaths) return absl::InvalidArgumentError("no path of products");
    choice.path[i] = static_cast<GemmPath>(path);
  }
  if (fits) return choice;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" names no choice of products"));
}

}  // namespace snug::execute

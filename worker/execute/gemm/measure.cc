// Times each path on one product of each kind. oneDNN, the default, stays unless ATen is clearly
// faster: which bits a run gives should not hang on noise. `converted` is no candidate: it serves
// where no other path does, and is then taken unasked.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/execute/gemm.h"
#include "worker/execute/gemm/paths.h"

namespace snug::execute {
namespace {

// As large as a small model's: of 512 rows and columns, oneDNN takes half as long again for one of
// the forms as for any larger product (Zen 3). Small enough for all to take half a second.
constexpr int64_t kRows = 1024, kWide = 1024, kTerms = 768, kThin = 16;
static_assert(kWide <= kRows, "one operand serves as either");
constexpr int kRepeats = 5;  // The fastest counts: others only show what else ran.
constexpr double kClearlyFaster = 0.8;

class Products {
 public:
  Products() : operand_(kRows * kTerms), c_(kRows * kWide) {}

  GemmCall Call(int kind) {
    const int form = kind % kGemmForms, shape = kind / kGemmForms % kGemmShapes;
    GemmCall call{.a = operand_.data(), .b = operand_.data(), .c = c_.data()};
    call.m = kRows;
    call.n = shape == 1 ? kThin : kWide;
    call.k = kTerms;
    call.a_transposed = form == 2;
    call.b_transposed = form == 1;
    call.a_stride = call.a_transposed ? call.m : call.k;
    call.b_stride = call.b_transposed ? call.k : call.n;
    call.c_stride = call.n;
    call.dtype = static_cast<program::DType>(kind / kGemmForms / kGemmShapes);
    return call;
  }

 private:
  // Zeros: a product takes as long for them as for any number.
  std::vector<float> operand_, c_;  // What is read may be the same twice.
};

// Infinite where the path refuses.
double Seconds(PathFunction run, const GemmCall& call) {
  const auto start = std::chrono::steady_clock::now();
  if (!run(call)) return std::numeric_limits<double>::infinity();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// By turns, so that both have what the machine has to give at the time.
bool AtenIsClearlyFaster(const GemmCall& call) {
  double aten = std::numeric_limits<double>::infinity(), onednn = aten;
  for (int i = 0; i <= kRepeats; ++i) {
    const double a = Seconds(AtenGemm, call), b = Seconds(OneDnnGemm, call);
    if (std::isinf(a)) return false;  // One path alone; what it takes of memory shows.
    if (i == 0) continue;             // It prepares something.
    aten = std::min(aten, a);
    onednn = std::min(onednn, b);
  }
  return aten < onednn * kClearlyFaster;
}

}  // namespace

GemmChoice MeasureGemmChoice() {
  GemmChoice choice = GemmChoice::Default();
  Products products;
  for (int kind = 0; kind < kGemmKinds; ++kind) {
    if (AtenIsClearlyFaster(products.Call(kind)))
      choice.path[static_cast<size_t>(kind)] = GemmPath::kAten;
  }
  return choice;
}

}  // namespace snug::execute

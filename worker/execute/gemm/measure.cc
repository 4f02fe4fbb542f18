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

// Large enough to be at full speed, small enough for all to take a fraction of a second.
constexpr int64_t kRows = 512, kWide = 512, kTerms = 768, kThin = 16;
constexpr int kRepeats = 3;  // The fastest counts: others only show what else ran.
constexpr double kClearlyFaster = 0.8;

class Products {
 public:
  Products() : a_(kRows * kTerms), b_(kTerms * kWide), c_(kRows * kWide) {}

  GemmCall Call(int kind) {
    const int form = kind % kGemmForms, shape = kind / kGemmForms % kGemmShapes;
    GemmCall call{.a = a_.data(), .b = b_.data(), .c = c_.data()};
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
  std::vector<float> a_, b_, c_;  // Zeros: a product takes as long for them as for any number.
};

double Seconds(PathFunction run, const GemmCall& call) {
  double best = std::numeric_limits<double>::infinity();
  if (!run(call)) return best;  // Refused; or done, and prepared.
  for (int i = 0; i < kRepeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run(call);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best;
}

}  // namespace

GemmChoice MeasureGemmChoice() {
  GemmChoice choice = GemmChoice::Default();
  Products products;
  for (int kind = 0; kind < kGemmKinds; ++kind) {
    const GemmCall call = products.Call(kind);
    const double aten = Seconds(AtenGemm, call);
    if (std::isinf(aten)) {
      OneDnnGemm(call);  // One path alone; what it takes of memory shows.
    } else if (aten < Seconds(OneDnnGemm, call) * kClearlyFaster) {
      choice.path[static_cast<size_t>(kind)] = GemmPath::kAten;
    }
  }
  return choice;
}

}  // namespace snug::execute

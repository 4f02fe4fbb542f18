// Losses against targets on CUDA: a warp a row, each lane every 32nd class.
#include "kernels/target_loss.h"

#include "kernels/by_type.h"
#include "kernels/cuda/entries.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pack.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/target_loss_rules.h"

namespace snug::kernels::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(kMaxBlock) TargetLossKernel(TargetLossParams p) {
  const Team<false> team;
  for (int64_t row = team.row; row < p.N; row += team.rows_apart) {
    const T* x = static_cast<const T*>(p.logits) + row * p.logits_stride;
    const float* targets = p.targets + row * p.targets_stride;
    const double scale =
        static_cast<double>(p.scale) * target_loss::WeightOf(p, row) / static_cast<double>(p.V);
    target_loss::Terms sums;
    for (int64_t v = team.thread; v < p.V; v += team.threads) {
      const target_loss::Terms terms = target_loss::Of(p.kind, static_cast<double>(Widen(x[v])),
                                                       static_cast<double>(targets[v]));
      sums.loss += terms.loss;
      sums.entropy += terms.entropy;
      sums.wrong += terms.wrong;
      if (p.dlogits == nullptr) continue;
      T* dx = static_cast<T*>(p.dlogits) + row * p.dlogits_stride;
      Round(static_cast<float>(scale * terms.slope), dx[v]);
    }
    sums.loss = team.Sum(sums.loss);
    sums.entropy = team.Sum(sums.entropy);
    sums.wrong = team.Sum(sums.wrong);
    if (team.thread == 0) target_loss::PutRow(p, row, sums);
  }
}

}  // namespace

Error TargetLoss(const TargetLossParams& p, Stream stream) {
  return ByType(p.dtype, [&](auto t) {
    return Launch(TargetLossKernel<decltype(t)>, {Ceil(p.N, kMaxBlock / kWarp)}, stream, p);
  });
}

}  // namespace snug::kernels::cuda

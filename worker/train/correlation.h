// How well numbers follow their targets: mean square, Pearson's and Spearman's correlation, as
// scikit-learn's mean_squared_error and scipy's pearsonr and spearmanr give them. Pure.
#ifndef WORKER_TRAIN_CORRELATION_H_
#define WORKER_TRAIN_CORRELATION_H_

#include <cstdint>
#include <optional>
#include <span>

namespace snug::train {

// Running means and sums about them (Welford 1962), so that nothing of the numbers is lost beside a
// large mean.
struct PairSums {
  double mean_x = 0.0, mean_y = 0.0;
  double xx = 0.0, yy = 0.0, xy = 0.0;  // Sums of products of distances from the means.

  // The pair is the `n`th, from 1.
  void Add(double x, double y, int64_t n);
};

// None: one of the two is the same everywhere, as it is of fewer than two pairs.
std::optional<double> Pearson(const PairSums& sums);

// `stride` numbers lie from one pair to the next.
struct Pairs {
  const float* x = nullptr;
  const float* y = nullptr;
  int64_t stride = 1;
};
// Each of as many elements as there are pairs.
struct RankScratch {
  std::span<uint32_t> order;
  std::span<double> x, y;
};
// Of ranks, the mean one where numbers are alike. None: as above.
std::optional<double> Spearman(const Pairs& pairs, const RankScratch& scratch);

}  // namespace snug::train

#endif  // WORKER_TRAIN_CORRELATION_H_

// How far the gradient of an inexact plan is from the exact one: sums in fp64 over the parameters
// of the layers in which a kind of stash keeps a site. Of an unbiased kind it is the noise of one
// draw.
#ifndef WORKER_TRAIN_DRIFT_H_
#define WORKER_TRAIN_DRIFT_H_

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "worker/execute/device.h"
#include "worker/execute/view.h"
#include "worker/program/stash.h"
#include "worker/train/kind_drift.h"

namespace snug::train {

// A measurement.
struct Drift {
  DriftByKind kinds;  // None of one whose exact gradient is zero, or that is not finite.
  // Why there is none at all; empty: there is one.
  std::string not_measured;
};

// Whether the gradient is measured in a step, counted from 1, of a job's steps from `first` to
// `last`: in the second, behind which no weight is where it began, then in every `every`-th.
struct DriftSchedule {
  int64_t every = 0;  // 0: never.
  int64_t first = 1, last = 1;
  int64_t measured = 0;  // The step in which it was, by whatever attempt; 0: in none.

  bool IsDue(int64_t step) const;
};

class DriftSums {
 public:
  // `kinds`: by parameter, as of program::InexactKindsOf. It must outlive the sums.
  explicit DriftSums(std::span<const uint32_t> kinds) : kinds_(kinds) {}

  // Both fp32, of the parameter's shape, in the device's memory.
  absl::Status Add(execute::Device& device, int32_t parameter, const execute::View& inexact,
                   const execute::View& exact);

  DriftByKind Kinds() const;

 private:
  struct Sums {  // Over elements.
    double inexact_squares = 0.0, exact_squares = 0.0, products = 0.0, difference_squares = 0.0;
    void Add(const float* inexact, const float* exact, int64_t count);
    void operator+=(const Sums& other);
  };

  std::span<const uint32_t> kinds_;
  std::array<Sums, program::kStashes> sums_;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_DRIFT_H_

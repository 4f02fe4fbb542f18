// Times what a node measures when it starts.
#ifndef WORKER_TRAIN_TIMING_H_
#define WORKER_TRAIN_TIMING_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/snug/status_macros.h"

namespace snug::train {

// The first prepares: threads, packed operands, pages, a GPU's kernels. It does not count.
inline constexpr int kTimingRounds = 1 + 4;

// What is timed, in turns with all others: a machine that others use has slow moments, and each
// round should meet another one. The second of all times counts, by rising seconds: the first may
// be luck, those behind it show what else ran.
class Timing {
 public:
  // `run` ends when its work is done.
  explicit Timing(std::function<absl::Status()> run) : run_(std::move(run)) {}
  absl::Status Run() {
    const auto start = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(run_());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    seconds_.push_back(took.count());
    return absl::OkStatus();
  }
  double seconds() const {
    std::vector<double> sorted(seconds_.begin() + 1, seconds_.end());
    std::sort(sorted.begin(), sorted.end());
    return sorted[1];
  }

 private:
  std::function<absl::Status()> run_;
  std::vector<double> seconds_;
};

inline absl::Status RunInTurns(const std::vector<std::vector<Timing*>>& timings) {
  for (int round = 0; round < kTimingRounds; ++round) {
    for (const std::vector<Timing*>& some : timings)
      for (Timing* timing : some) RETURN_IF_ERROR(timing->Run());
  }
  return absl::OkStatus();
}

}  // namespace snug::train

#endif  // WORKER_TRAIN_TIMING_H_

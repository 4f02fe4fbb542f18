// The checkpoints of an attempt: the one that it goes on from, those that it leaves, and which of
// them is the best.
#ifndef WORKER_TRAIN_RUN_CHECKPOINTS_H_
#define WORKER_TRAIN_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/train/best.h"
#include "worker/train/run.h"
#include "worker/train/run_metrics.h"

namespace snug::train {

class RunCheckpoints {
 public:
  RunCheckpoints(Run& run, RunMetrics& metrics) : run_(run), metrics_(metrics) {}

  // From the checkpoint that the attempt names, if it names one.
  absl::Status Resume();

  // A disk that is full costs a checkpoint, not the run; weights that are not finite end it.
  absl::Status Save();
  bool saved() const { return saved_step_ == run_.trainer->global_step(); }  // This very step.

  // Takes note of an evaluation. The best one is kept as soon as it is known; one that finds no
  // room on the disk is not kept, and so is not the best.
  absl::Status Judge(const Evaluation& evaluation);
  const BestState& best() const { return best_; }
  bool StopsEarly() const;
  // Takes the weights of the best one.
  absl::Status RestoreBest();

 private:
  bool KeepsBest() const;
  void ForgetBestThatIsGone();
  std::string BestFolder() const { return run_.attempt.checkpoints_dir + "/" + best_.checkpoint; }
  checkpoint::RunState State() const;
  absl::StatusOr<checkpoint::Saved> SaveWithMetrics();
  absl::Status BeginWith(const std::string& folder);
  absl::StatusOr<checkpoint::RunState> Restore(const std::string& folder);

  Run& run_;
  RunMetrics& metrics_;
  BestState best_;
  int64_t saved_step_ = -1;
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_RUN_CHECKPOINTS_H_

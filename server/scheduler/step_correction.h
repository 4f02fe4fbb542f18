// What the steps of a running job say of the time that was predicted for them. Pure.
//
// Of each step the measured time is divided by the predicted one of the plan in force. The median
// of the last such ratios tells how the job runs now: with its rows, on this device, beside these
// neighbours. It holds for the next plan of the attempt as well, and for no other attempt.
// `step_time` of the job shows it, and keeps it over a restart of the daemon.
//
// All plans of a job are corrected alike, so no choice between them depends on the ratio
// (place/squeeze.h). What depends on it is when the job is expected to end, and so which jobs may
// go past one that waits for that end (device_board.cc: EstimatedEnd).
#ifndef SERVER_SCHEDULER_STEP_CORRECTION_H_
#define SERVER_SCHEDULER_STEP_CORRECTION_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "server/scheduler/recent_median.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

class StepCorrection {
 public:
  // The worker has reported the job's progress; its attempt began behind step `began_at`. The first
  // two steps of an attempt warm up, and so does the first one under another plan. Gives measured
  // to predicted time of a step that counts.
  std::optional<double> OnStep(int64_t began_at, v1::Job& job);

 private:
  RecentMedian ratios_;       // Measured to predicted.
  double predicted_s_ = 0.0;  // At the last report; 0: there was none.
  int64_t last_step_ = 0;
};

// Measured to predicted time of the job's steps; 0: not known yet.
double StepRatioOf(const v1::Job& job);

// The same of those that it made alone on its device (interference.h); 0: it has made none.
double AloneRatioOf(const v1::Job& job);

// Writes the time that the job's plan predicts, and the same corrected by `ratio`; 0: by nothing.
// Its steps alone told how far predictions are off, and so it is for this plan.
void SetStepTime(double ratio, v1::Job& job);

// Of the job's steps, without what comes between them. InfiniteDuration: it is not known.
absl::Duration LeftUntilEnd(const v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_STEP_CORRECTION_H_

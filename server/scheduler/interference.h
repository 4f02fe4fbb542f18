// Whether its neighbours slow a running job more than it allows. Pure.
//
// A step of the job is told by its ratio of measured to predicted time (step_correction.h). The
// median of the last such ratios beside its neighbours is held against that of kTellingSteps in a
// row alone on the device. A job that was never alone has the prediction itself for that, so 1, on
// a GPU whose rates were measured; elsewhere nothing is known of it: predictions for a CPU are the
// same for each share of its threads. What is left of the quotient beyond the job's fair share of
// the device is its slowdown, which max_slowdown of its spec bounds.
//
// What was seen beside some neighbours says nothing of others: with each that comes or goes, and
// as long as somebody is there who makes no steps, it begins anew. After a neighbour has left for
// the job's sake, half of that one's part of the slowdown has to be gone beside those that were to
// stay: else it was not slowed by neighbours (a machine has other users), and the departure was in
// vain. Beside any others there is no verdict.
#ifndef SERVER_SCHEDULER_INTERFERENCE_H_
#define SERVER_SCHEDULER_INTERFERENCE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/scheduler/recent_median.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// So many steps tell how the job runs, alone or beside some neighbours.
inline constexpr int kTellingSteps = 20;

// Times as long as alone that a step may take of a job that has its fair share of a device. On a
// GPU, whose time is sliced, as many as jobs make steps there. On a CPU plans are made for a share
// of its threads; but a worker keeps those that it was started with, so there can be more of them
// (`threads`, of all these jobs) than the device has.
double FairShareOf(bool gpu, int jobs, int threads, int device_threads);

// Who else is on the device while the job makes a step.
struct Company {
  std::vector<std::string> neighbours;  // Attempts that make steps, by what tells them apart.
  bool others = false;       // Somebody who makes none: who loads, ends or answers prompts.
  double fair_share = 1.0;   // FairShareOf.
  bool predictable = false;  // What is predicted of a step is what it takes alone.
};

struct SeenStep {
  double ratio = 0.0;  // Measured to predicted time.
  absl::Duration at;   // By SinceBoot().
};

class Interference {
 public:
  // Writes into the job's step_time what its steps alone took, and its slowdown. `after`: how long
  // it has to be slower than it allows, which kTellingSteps have to be, too. True: the last
  // departure was in vain, as this step shows.
  bool OnStep(const SeenStep& step, const Company& company, absl::Duration after, v1::Job& job);
  // At the last step: so slow, and for so long, that a neighbour has to leave.
  bool too_slow() const { return too_slow_; }

  // This one of its neighbours is to leave. Nobody comes instead for `keep_off`, and twice as long
  // with each departure after it.
  void OnDeparture(const std::string& neighbour, absl::Duration now, absl::Duration keep_off);
  // That could not be stored: it is left as it is until it has been too slow for as long again.
  void Forget() { BeginAnew({}); }
  // Neighbours that the job bears; INT32_MAX: nobody has had to leave, or there was no need to.
  int bears() const;
  absl::Duration keeps_off_until() const { return keeps_off_until_; }  // Since the last departure.
  // Whoever was kept off may come again. True: somebody was kept off until now.
  bool Lapse(absl::Duration now);

 private:
  // One that has helped, or of which that is not known yet.
  struct Departure {
    std::vector<std::string> staying;
    double ratio = 0.0;  // Before it, in so large a fair share.
    double fair_share = 1.0;
    bool helped = false;
  };

  void BeginAnew(const std::vector<std::string>& neighbours);
  // True: it was in vain. `usual`: the ratio of steps alone.
  bool SeeRelief(double usual, double slowdown, double bound);

  // Beside these neighbours, or alone:
  std::vector<std::string> neighbours_;
  RecentMedian ratios_;
  int steps_ = 0;
  double fair_share_ = 1.0;
  std::optional<absl::Duration> slow_since_;
  bool too_slow_ = false;
  std::optional<Departure> departure_;
  int departures_ = 0;
  absl::Duration keeps_off_until_;
};

// "3 times its fair share of time (max_slowdown is 1.5)".
std::string SlownessOf(const v1::Job& job);

// Why `neighbour` leaves the device of `slowed`. It tells nobody more of others' jobs.
std::string WhyItLeaves(const v1::Job& neighbour, const v1::Job& slowed);

// The reason of a job that is on its way off its device.
std::string LeavingReason(const v1::Job& job);

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_INTERFERENCE_H_

// What of ended jobs is to go: a pure walk over all jobs, newest first.
//
// Each job keeps what fits the limits beside what newer ones keep. A job that another one was made
// from, or goes on from, keeps everything as long as that one is there, and counts like the others.
// Jobs refer to older ones only, so that one walk sees every reference before what it refers to.
#ifndef SERVER_RETENTION_SWEEP_H_
#define SERVER_RETENTION_SWEEP_H_

#include <cstdint>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "server/retention/limits.h"
#include "server/retention/tally.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// What a job has on the disk.
struct Leavings {
  int64_t all_bytes = 0;  // With its output, and what is named below.
  bool has_checkpoints = false;
  int64_t checkpoint_bytes = 0;
  bool has_logs = false;
  int64_t log_bytes = 0;
};

struct Verdict {
  bool job = false;  // All of it, its row as well.
  bool checkpoints = false;
  bool logs = false;

  bool anything() const { return job || checkpoints || logs; }
};

class Sweep {
 public:
  explicit Sweep(const RetentionLimits& limits)
      : jobs_(limits.jobs), checkpoints_(limits.checkpoints), logs_(limits.logs) {}

  // Of the next older job. `age`: since it has ended; of a live one it is not looked at.
  Verdict Judge(const v1::Job& job, absl::Duration age, const Leavings& leavings);

  // Jobs that are over a limit, and are kept for those that refer to them.
  int64_t held() const { return held_; }

 private:
  bool Goes(Tally& tally, absl::Duration age, int64_t bytes, bool referred);
  void NoteReferences(const v1::Job& job);

  Tally jobs_;
  Tally checkpoints_;
  Tally logs_;
  std::set<std::string> referred_;  // Names.
  int64_t held_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_RETENTION_SWEEP_H_

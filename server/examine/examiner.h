// The thread that looks through the store and the files that it names, again and again, at a small
// part of a core's and of the disk's time. What it finds is in the log and in the metrics; nothing
// is repaired.
#ifndef SERVER_EXAMINE_EXAMINER_H_
#define SERVER_EXAMINE_EXAMINER_H_

#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "server/examine/examination.h"
#include "server/job/job_store.h"
#include "server/metrics/metrics.h"

namespace snug::server {

// Store and metrics outlive it.
class Examiner {
 public:
  // The first examination begins after `pause`, each further one that long after the last.
  Examiner(JobStore& store, Premises premises, Metrics& metrics, absl::Duration pause);
  ~Examiner();  // Ends the examination within a piece.

 private:
  void Loop();
  void ExamineOnce();

  JobStore& store_;
  const Premises premises_;
  Metrics& metrics_;
  const absl::Duration pause_;
  absl::Notification stop_;
  std::thread thread_;
};

// What there is to be found at once, before anything goes by it: in the log and in the metrics. It
// does not keep the daemon from its work.
void ExamineAtStart(JobStore& store, const Premises& premises, Metrics& metrics);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINER_H_

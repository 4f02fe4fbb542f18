// Every Prometheus family of the daemon.
//
// Label values that a user can choose pass SanitizeLabel, numbers pass a finite check: one bad byte
// or NaN would blind all monitoring. Series of a job exist while it has an attempt, for at most
// kMaxJobSeries jobs at once.
#ifndef SERVER_METRICS_METRICS_H_
#define SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

inline constexpr size_t kMaxJobSeries = 256;

// Why a worker was ended as not at work.
inline constexpr const char* kNoHello = "no_hello";          // It never called.
inline constexpr const char* kHung = "hung";                 // It beats, and does nothing.
inline constexpr const char* kSilent = "silent";             // Nothing is heard of it.
inline constexpr const char* kBadMessages = "bad_messages";  // What it says makes no sense.

// Valid UTF-8 of [A-Za-z0-9._:/-], at most 128 bytes, as a job's key has; anything else becomes
// '_'.
std::string SanitizeLabel(absl::string_view value);

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // The file system of the state folder, from now on. Before anybody asks for the text.
  void WatchDisk(const std::string& folder);

  void CountJobs(v1::Job::State state, int change);
  void Attempt(absl::string_view outcome);  // succeeded, failed, lost, paused, ...
  // Steps since the last report, a worker's reports being coalesced: the time of the last one
  // stands for all of them.
  void Steps(const std::string& device, int64_t new_steps, int64_t new_tokens, double step_seconds);
  void LinkError();
  void WorkerEnded(absl::string_view reason);  // One of the four above.
  // Of an attempt that has ended; of one that measured nothing, nothing follows.
  void Prediction(int64_t predicted_bytes, int64_t measured_bytes);
  // Likewise: measured to predicted time of its steps; 0: it took too few.
  void StepPrediction(const std::string& device, double ratio);
  // A job has to leave the device because it slows another one there.
  void Displaced(const std::string& device);
  void Round(absl::Duration took);

  // A job waits to be placed; its attempt is made; or it is gone without one.
  void Queued(const std::string& id, absl::Time since);
  void Placed(const std::string& id, absl::Time now);
  void Unqueued(const std::string& id);

  // Of the host's memory, beside the devices': what plans may use, and what is promised of it.
  void Host(int64_t capacity_bytes, int64_t reserved_bytes);
  // A job with an attempt, as it is now; and its end.
  void Job(const v1::Job& job);
  void Heard(const std::string& id, absl::Time when);  // From its worker.
  void ForgetJob(const std::string& id);
  // Capacity, promised bytes, and what the attempts on it need and have needed at most.
  void Devices(const std::vector<v1::Device>& devices, const std::vector<v1::Job>& running);

  // What retention has removed of an ended job: job, checkpoints or logs; and the end of a sweep.
  void Removed(const std::string& what, int64_t bytes);
  void Swept(absl::Time when, int64_t held_jobs);
  // A call of an ended job's webhook: heard, failed (it is tried again) or given_up.
  void WebhookCalled(const std::string& outcome);
  // The end of an examination of the store: of each check that was made, what it has found.
  void Examined(absl::Time when, const std::map<std::string, int64_t>& findings);

  // The whole text, as a scrape gets it.
  std::string Text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_METRICS_H_

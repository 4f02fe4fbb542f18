// Every Prometheus family of the daemon, and the endpoint on loopback that serves them.
//
// Label values that a user can choose pass SanitizeLabel, numbers pass a finite check: one bad byte
// or NaN would blind all monitoring. Series of a job exist while it has an attempt, for at most
// kMaxJobSeries jobs at once.
#ifndef SERVER_METRICS_METRICS_H_
#define SERVER_METRICS_METRICS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>
#include "absl/strings/string_view.h"

#include "absl/status/status.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

inline constexpr size_t kMaxJobSeries = 256;

// Valid UTF-8 of [A-Za-z0-9._:/-], at most 64 bytes; anything else becomes '_'.
std::string SanitizeLabel(absl::string_view value);

class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Serves http://127.0.0.1:<port>/metrics; 0 = a free port. UNAVAILABLE when the port is taken:
  // the daemon goes on without.
  absl::Status Serve(int port);
  int port() const;  // 0: not served.

  void CountJobs(v1::Job::State state, int change);
  void Attempt(absl::string_view outcome);  // succeeded, failed, lost, paused, ...
  // Steps since the last report, a worker's reports being coalesced: the time of the last one
  // stands for all of them.
  void Steps(int64_t new_steps, int64_t new_tokens, double step_seconds);
  void LinkError();

  // A job with an attempt, as it is now; and its end.
  void Job(const v1::Job& job);
  void ForgetJob(const std::string& id);
  // Capacity, promised bytes, and what the attempts on it need and have needed at most.
  void Devices(const std::vector<v1::Device>& devices, const std::vector<v1::Job>& running);

  // The whole text, as a scrape gets it.
  std::string Text() const;

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace snug::server

#endif  // SERVER_METRICS_METRICS_H_

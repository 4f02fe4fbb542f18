// The whole store and the files that it names, looked through: for `snug doctor` at once, for the
// examiner at its pace, and for a start what is quick.
//
// Check by check on the store's thread, and the specs in pieces: submits wait for one check at a
// time. The whole is of no one moment; each check compares what was committed together. Outputs and
// the checkpoints that a job may go on from are read to the last byte, beside the store's thread.
#ifndef SERVER_EXAMINE_EXAMINATION_H_
#define SERVER_EXAMINE_EXAMINATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/job/job_store.h"
#include "server/place/devices.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// What the store is held against beside its own rows and the files that they name.
struct Premises {
  std::string state_dir;  // Whose attempts have processes.
  std::vector<Device> devices;
  int64_t host_bytes = INT64_MAX;  // Of the host's memory, for all devices together.
};

// Called after each piece of the work with what it took. False: the examination ends.
using Rest = std::function<bool(absl::Duration took)>;

// With `rest` no piece holds up submits for long: checks that read a table as a whole are left out
// where there are more than kMaxJobsAtOnce. CANCELLED: it was ended.
inline constexpr int64_t kMaxJobsAtOnce = 10'000;
absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Premises& premises,
                                               const Rest& rest = nullptr);

// Only the rows of jobs that have not ended, and no file: some milliseconds where a thousand wait.
// The store has compared itself with its witness when it was opened.
absl::StatusOr<v1::CheckStoreResponse> ExamineLive(JobStore& store, const Premises& premises);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINATION_H_

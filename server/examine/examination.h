// The whole store and the files that it names, looked through: for `snug doctor` at once, for the
// examiner at its pace.
//
// Check by check on the store's thread, and the specs in pieces: submits wait for one check at a
// time. The whole is of no one moment; each check compares what was committed together. Outputs and
// the checkpoints that a job may go on from are read to the last byte, beside the store's thread.
#ifndef SERVER_EXAMINE_EXAMINATION_H_
#define SERVER_EXAMINE_EXAMINATION_H_

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/job/job_store.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// Called after each piece of the work with what it took. False: the examination ends.
using Rest = std::function<bool(absl::Duration took)>;

// With `rest` no piece holds up submits for long: checks that read a table as a whole are left out
// where there are more than kMaxJobsAtOnce. CANCELLED: it was ended.
inline constexpr int64_t kMaxJobsAtOnce = 10'000;
absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Rest& rest = nullptr);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINATION_H_

// The whole store and the files that it names, looked through: for `snug doctor` at once, for the
// examiner at its pace, and for a start what is quick.
//
// Tables are read in parts on the store's thread, so that submits wait for some milliseconds at a
// time, however many jobs there are. The whole is of no one moment; each check compares what was
// committed together. Outputs and checkpoints, also those of jobs that have ended, are read to the
// last byte, beside the store's thread.
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

// With `rest` no piece holds up submits for long, and of tables of many rows the pages are not
// compared with one another: without it they are, while submits wait. CANCELLED: it was ended.
absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store, const Premises& premises,
                                               const Rest& rest = nullptr);

// Only the rows of jobs that have not ended, and no file: some milliseconds where a thousand wait.
// The store has compared itself with its witness when it was opened.
absl::StatusOr<v1::CheckStoreResponse> ExamineLive(JobStore& store, const Premises& premises);

}  // namespace snug::server

#endif  // SERVER_EXAMINE_EXAMINATION_H_

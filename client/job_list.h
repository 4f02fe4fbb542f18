// Jobs as a table: a line per job.
#ifndef CLIENT_JOB_LIST_H_
#define CLIENT_JOB_LIST_H_

#include <ostream>
#include <vector>

#include "absl/time/time.h"
#include "snug/v1/job.pb.h"

namespace snug::client {

// By its step_time, before that is known at the pace of its last step. Negative: nothing is known,
// or nothing is left to wait for.
absl::Duration TimeLeftOf(const v1::Job& job);

struct ListOptions {
  absl::Time now;   // Ages count to it.
  int columns = 0;  // Of the terminal; 0: lines may be as long as they are.
};

// On a terminal no line is longer than it is wide: columns that can be missed are left out, those
// that can be missed most first, then reasons are cut.
void PrintJobs(const std::vector<v1::Job>& jobs, const ListOptions& options, std::ostream& out);

}  // namespace snug::client

#endif  // CLIENT_JOB_LIST_H_

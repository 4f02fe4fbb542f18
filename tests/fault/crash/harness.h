// Daemons side by side that are killed again and again, at failpoints (server/failpoint.h) and at
// random moments, under submits, cancels, pauses, resumes, updates, deletions, uploads, backups and
// restores; their workers train nothing (tests/server/testing/fake_worker.cc).
#ifndef TESTS_FAULT_CRASH_HARNESS_H_
#define TESTS_FAULT_CRASH_HARNESS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "tests/fault/crash/totals.h"

namespace snug::crash {

struct Options {
  int64_t cycles = 500;  // That count.
  int daemons = 4;
  uint32_t seed = 0;
  int64_t each_hit = 0;  // How often each failpoint must have been hit at the end.
};

// Until so many cycles have counted, or something was wrong. INVALID_ARGUMENT: a program is not
// named in the environment.
absl::StatusOr<Summary> Run(const Options& options);

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_HARNESS_H_

// The programs of a run, by the environment that ctest gives.
#ifndef TESTS_FAULT_CRASH_PROGRAMS_H_
#define TESTS_FAULT_CRASH_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::crash {

struct Programs {
  std::string daemon;           // SNUG_FAILING_DAEMON
  std::string shim;             // SNUG_FAILING_SHIM
  std::string worker;           // SNUG_FAKE_WORKER
  std::string inspect, launch;  // In SNUG_BIN_DIR.
};

// INVALID_ARGUMENT: a variable is not set.
absl::StatusOr<Programs> ProgramsOfEnvironment();

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_PROGRAMS_H_

#include "tests/fault/crash/harness.h"

#include <thread>
#include <vector>

#include "proto/snug/status_macros.h"
#include "tests/fault/crash/side.h"

namespace snug::crash {

absl::StatusOr<Summary> Run(const Options& options) {
  ASSIGN_OR_RETURN(const Programs programs, ProgramsOfEnvironment());
  Totals totals(options.cycles);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.daemons; ++i)
    threads.emplace_back([&, i] {
      Side(programs, totals, i, options.seed * 1000 + static_cast<uint32_t>(i)).Run();
    });
  for (std::thread& thread : threads) thread.join();
  return totals.Sum();
}

}  // namespace snug::crash

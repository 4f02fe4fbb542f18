// A trace of jobs, in any of the three formats that snug-sim reads.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "server/sim/read_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server::sim;
  const auto trace = ParseTrace(std::string(reinterpret_cast<const char*>(bytes), size));
  if (!trace.ok()) return 0;
  std::set<std::string> ids;
  for (const Arrival& job : trace->arrivals) {
    if (job.work_us < 1 || !ids.insert(job.id).second) abort();
    if (!(job.utilisation >= 0.0 && job.utilisation < 1.0)) abort();
  }
  if (trace->arrivals.empty() || trace->left_out < 0) abort();
  return 0;
}

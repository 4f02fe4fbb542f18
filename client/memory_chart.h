// The bytes of a plan over one step, as layers on one another: what stays whatever is done, and
// what of the arena holds something at that time.
#ifndef CLIENT_MEMORY_CHART_H_
#define CLIENT_MEMORY_CHART_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "client/chart.h"
#include "snug/v1/service.pb.h"

namespace snug::client {

struct MemoryLayer {
  std::string name;
  char letter = ' ';           // In a terminal.
  std::vector<int64_t> bytes;  // By instant.
  int64_t peak_bytes = 0;
};

struct MemoryChart {
  std::string plan;
  std::vector<MemoryLayer> layers;  // The lowest first; none is empty throughout.
  std::vector<bool> backward;       // By instant.
  int64_t peak_bytes = 0;           // Of all layers together,
  int64_t host_bytes = 0;           // and of what lies in the host's memory, in no layer.
};

// Of the chosen plan, or of the smallest where none is: of the one whose timeline the reply has.
MemoryChart MemoryChartOf(const v1::PlanJobResponse& reply);

void PrintMemoryChart(const MemoryChart& chart, const TextOptions& options, std::ostream& out);

// A whole SVG document.
std::string MemoryChartSvg(const MemoryChart& chart);

}  // namespace snug::client

#endif  // CLIENT_MEMORY_CHART_H_

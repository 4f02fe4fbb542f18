// What came of a simulation, for people and for programs.
#ifndef SERVER_SIM_REPORT_H_
#define SERVER_SIM_REPORT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "server/sim/job_classes.h"
#include "server/sim/simulation.h"

namespace snug::server::sim {

struct Report {
  std::string source;  // philly:jobs=2000,load=0.9, or a file.
  std::string policy;
  uint64_t seed = 0;
  std::string devices;  // 8xh100
  size_t device_count = 1;
  double load = 0.0;
  double interference = 1.0;
  int64_t left_out = 0;  // Jobs of a trace that are none here.
  Outcome outcome;
};

// Of sorted values, the one that a share of them does not exceed; 0 of none.
double Quantile(const std::vector<double>& sorted, double share);

std::string ToJson(const Report& report);  // One line.
void PrintTable(const std::vector<Report>& reports, std::ostream& out);
void PrintClasses(const std::vector<JobClass>& classes, std::ostream& out);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_REPORT_H_

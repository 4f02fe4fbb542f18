// Traces of clusters in the formats that they were published in:
//   philly  cluster_job_log, JSON: a list of jobs with submitted_time and attempts
//   helios  cluster_log.csv: job_id, gpu_num, submit_time, duration among its columns
//   pai     pai_task_table.csv, without a header: job_name, task_name, inst_num, status,
//           start_time, end_time, plan_cpu, plan_mem, plan_gpu, gpu_type
// A job here is one device's. So a job of a trace that had at least one GPU is one job of the time
// that it ran, however many it had; those without a GPU, or whose times are not there, are left
// out. plan_gpu below 100 is taken for the utilisation; the other formats have none.
#ifndef SERVER_SIM_READ_TRACE_H_
#define SERVER_SIM_READ_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sim/generate.h"

namespace snug::server::sim {

struct Trace {
  std::string format;  // philly, helios or pai.
  std::vector<Arrival> arrivals;
  int64_t left_out = 0;
};

// Which format it is, the text tells. Errors name the line, or the job, and what is wrong.
absl::StatusOr<Trace> ParseTrace(const std::string& text);
absl::StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_READ_TRACE_H_

// Traces that are drawn, and what a trace that was read does not say. Every distribution is in the
// table of generate.cc.
#ifndef SERVER_SIM_GENERATE_H_
#define SERVER_SIM_GENERATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/sim/job.h"
#include "server/sim/job_classes.h"

namespace snug::server::sim {

// When a job comes and how long it runs, alone on a device.
struct Arrival {
  std::string id;
  int64_t arrives_us = 0;
  int64_t work_us = 0;
  double utilisation = 0.0;  // 0: not known, drawn.
};

struct GenerateSpec {
  std::string name = "philly";
  int64_t jobs = 2000;
  double load = 0.9;  // 0: all come at once.
};

// "philly", "helios:jobs=500,load=0.5".
absl::StatusOr<GenerateSpec> ParseGenerateSpec(const std::string& text);
std::vector<std::string> GeneratorNames();

absl::StatusOr<std::vector<Arrival>> Generate(const GenerateSpec& spec, uint64_t seed);

// Moves the arrivals, all by one factor, so that their work is `load` times what so many devices do
// alone from the first arrival to the last. Load 0: all come at once.
void StretchTo(double load, size_t devices, std::vector<Arrival>& arrivals);

// Draws the rest of each job: its class by weight, the utilisation where it is not known (as of the
// generator of this name), what it holds and what an estimator believes.
std::vector<Job> JobsOf(const std::vector<Arrival>& arrivals, const std::vector<JobClass>& classes,
                        const std::string& generator, uint64_t seed);

}  // namespace snug::server::sim

#endif  // SERVER_SIM_GENERATE_H_

// Jobs and devices as the simulator has them.
#ifndef SERVER_SIM_JOB_H_
#define SERVER_SIM_JOB_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/place/squeeze.h"

namespace snug::server::sim {

// Of a job: its plans, fastest first, of like time the smaller first. Jobs of a class share theirs.
using Frontier = std::shared_ptr<const std::vector<PlanOption>>;

struct Job {
  std::string id;  // By which jobs that come at the same time are ordered.
  int priority = 0;
  int64_t arrives_us = 0;
  int64_t work_us = 0;       // Of its steps, alone on a device under its fastest plan.
  double utilisation = 1.0;  // Share of a device that it keeps busy while it is alone there.
  Frontier plans;
  double held_share = 1.0;  // Of a plan's bytes, those that it comes to hold.
  double estimate = 1.0;    // What a scheduler without a planner believes its bytes are, of those.

  const PlanOption& plan(int index) const { return (*plans)[static_cast<size_t>(index)]; }
};

struct SimDevice {
  std::string name;
  size_t whole = 0;  // The device that it is, or is a part of.
  int64_t capacity_bytes = 0;
  double compute = 1.0;  // Share of a whole device's.
  bool one_job = false;  // No more than one at a time.
};

}  // namespace snug::server::sim

#endif  // SERVER_SIM_JOB_H_

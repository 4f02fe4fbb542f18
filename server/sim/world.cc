#include "server/sim/world.h"

namespace snug::server::sim {

int64_t Attempt::held_bytes() const {
  if (!peaked) return 0;
  return static_cast<int64_t>(static_cast<double>(job->plan(plan).bytes) * job->held_share);
}

int64_t Place::ReservedBytes() const {
  int64_t bytes = 0;
  for (const Attempt& attempt : attempts) bytes += attempt.reserved_bytes;
  return bytes;
}

int64_t Place::HeldBytes() const {
  int64_t bytes = 0;
  for (const Attempt& attempt : attempts) bytes += attempt.held_bytes();
  return bytes;
}

double Place::Utilisation() const {
  double sum = 0.0;
  for (const Attempt& attempt : attempts)
    if (attempt.steps) sum += attempt.job->utilisation;
  return sum;
}

std::vector<DeviceState> World::DeviceStates() const {
  std::vector<DeviceState> states;
  for (const Place& place : places) {
    DeviceState& state = states.emplace_back();
    state.name = place.device.name;
    state.gpu = true;
    state.capacity_bytes = place.device.capacity_bytes;
    state.reserved_bytes = place.ReservedBytes();
    state.jobs = static_cast<int>(place.attempts.size());
    if (place.device.one_job) state.max_jobs = 1;
    for (const Attempt& attempt : place.attempts)
      state.running.push_back(
          {.key = attempt.key, .bytes = attempt.reserved_bytes, .end_us = attempt.end_us});
  }
  return states;
}

QueuedJob QueuedAs(const Job& job, const std::vector<Place>& places) {
  QueuedJob queued{.id = job.id, .priority = job.priority, .order = job.arrives_us};
  std::vector<PlanNeeds> needs;
  for (const PlanOption& plan : *job.plans) needs.emplace_back(plan.bytes);
  for (const Place& place : places) queued.plans[place.device.name] = needs;
  return queued;
}

}  // namespace snug::server::sim

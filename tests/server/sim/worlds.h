// Jobs and devices for tests of the simulator, in bytes and seconds that can be added up by hand.
#ifndef TESTS_SERVER_SIM_WORLDS_H_
#define TESTS_SERVER_SIM_WORLDS_H_

#include <string>
#include <utility>
#include <vector>

#include "server/sim/policy.h"
#include "server/sim/random.h"
#include "server/sim/simulation.h"

namespace snug::server::sim {

inline constexpr int64_t kSecond = 1'000'000;

inline Job JobOf(const std::string& id, int64_t arrives_s, int64_t work_s,
                 std::vector<PlanOption> plans) {
  return {.id = id,
          .arrives_us = arrives_s * kSecond,
          .work_us = work_s * kSecond,
          .utilisation = 0.2,
          .plans = std::make_shared<const std::vector<PlanOption>>(std::move(plans))};
}

inline std::vector<SimDevice> DevicesOf(size_t count, int64_t bytes) {
  std::vector<SimDevice> devices;
  for (size_t i = 0; i < count; ++i)
    devices.push_back({.name = "gpu:" + std::to_string(i), .capacity_bytes = bytes});
  return devices;
}

// Of 1,000 bytes each device, most jobs small, some nearly as large as a device, a few larger.
inline std::vector<Job> RandomJobs(uint64_t seed, int count) {
  Random random(seed);
  std::vector<Job> jobs;
  const double gap_s = random.LogNormal(20.0, 1.0);
  double now_s = 0.0;
  for (int i = 0; i < count; ++i) {
    now_s += random.Chance(0.3) ? 0.0 : random.Exponential(gap_s);
    const int64_t least = random.Chance(0.9) ? random.Whole(1, 300) : random.Whole(400, 1010);
    std::vector<PlanOption> plans = {{least, random.Between(0.5, 3.0)}};
    for (int64_t more = random.Whole(0, 5); more > 0; --more)
      plans.insert(plans.begin(), {plans.front().bytes + random.Whole(1, 200),
                                   plans.front().seconds * random.Between(0.7, 0.999)});
    Job job = JobOf("job-" + std::to_string(i), 0, 0, std::move(plans));
    job.priority = static_cast<int>(random.Whole(-1, 1));
    job.arrives_us = static_cast<int64_t>(now_s) * kSecond;
    job.work_us = 1 + static_cast<int64_t>(random.LogNormal(60.0, 1.5) * 1e6);
    job.utilisation = random.Between(0.05, 1.0);
    job.held_share = random.Between(0.97, 1.0);
    job.estimate = random.LogNormal(1.0, 0.2);
    jobs.push_back(std::move(job));
  }
  return jobs;
}

}  // namespace snug::server::sim

#endif  // TESTS_SERVER_SIM_WORLDS_H_

// One round of placement over 10,000 waiting jobs on eight full devices: at most 50 ms (F-59), with
// ten groups of like jobs and with nobody like another. No test passes or fails by it.
#include <benchmark/benchmark.h>

#include "server/place/policy.h"

namespace snug::server {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// cpu:0 ... cpu:7 of 8 GiB, each with a job of 7 GiB that does not end.
std::vector<DeviceState> FullDevices() {
  std::vector<DeviceState> devices;
  for (int d = 0; d < 8; ++d) {
    const RunningJob job = {.key = {0, -1, "running"}, .bytes = 7 * kGiB, .end_us = INT64_MAX};
    devices.push_back({.name = "cpu:" + std::to_string(d),
                       .capacity_bytes = 8 * kGiB,
                       .reserved_bytes = job.bytes,
                       .jobs = 1,
                       .running = {job}});
  }
  return devices;
}

// `kinds` different jobs, in turn, each with 20 plans on each device.
void DecideForALongQueue(benchmark::State& state) {
  const std::vector<DeviceState> devices = FullDevices();
  JobQueue queue;
  for (int i = 0; i < 10'000; ++i) {
    QueuedJob job{.id = "job-" + std::to_string(i), .order = i};
    for (const DeviceState& device : devices)
      for (int plan = 0; plan < 20; ++plan)
        job.plans[device.name].emplace_back(2 * kGiB + (20 - plan) * 1000 + i % state.range(0));
    queue.Put(std::move(job));
  }
  for (auto _ : state) benchmark::DoNotOptimize(Decide(queue, devices, 0));
}
BENCHMARK(DecideForALongQueue)->Arg(10)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace snug::server

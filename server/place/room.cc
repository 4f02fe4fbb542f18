#include "server/place/room.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"

namespace snug::server {
namespace {

constexpr int kAnyThreads = INT32_MAX;

JobQueue::Key KeyOf(const QueuedJob& job) { return {-job.priority, job.order, job.id}; }

}  // namespace

int FastestWithin(const QueuedJob& job, const std::string& device, int64_t bytes, int threads) {
  const auto plans = job.plans.find(device);
  if (plans == job.plans.end()) return -1;
  const int64_t limit = std::min(bytes, job.budget_bytes);
  for (size_t plan = 0; plan < plans->second.size(); ++plan) {
    const PlanNeeds& needs = plans->second[plan];
    if (needs.bytes <= limit && needs.threads <= threads) return static_cast<int>(plan);
  }
  return -1;
}

int64_t LeastOn(const QueuedJob& job, const DeviceState& device) {
  const auto plans = job.plans.find(device.name);
  if (plans == job.plans.end() || plans->second.empty()) return -1;
  const auto least = std::min_element(plans->second.begin(), plans->second.end());
  return least->bytes <= std::min(device.capacity_bytes, job.budget_bytes) ? least->bytes : -1;
}

int64_t Room::Free() const {
  if (!device_.trouble.empty() || device_.jobs >= device_.max_jobs) return -1;
  return device_.capacity_bytes - device_.reserved_bytes - device_.taken_bytes;
}

int64_t Room::Offer() const { return left_ ? std::min(Free(), *left_) : Free(); }

// One of 1, 2, 3-4, 5-8, ... jobs: the whole, a half, a quarter, an eighth.
int Room::Threads() const {
  if (device_.shares.empty()) return kAnyThreads;
  const size_t halvings = std::bit_width(static_cast<unsigned>(device_.jobs));
  return device_.shares[std::min(halvings, device_.shares.size() - 1)];
}

void Room::Place(const QueuedJob& job, int64_t bytes) {
  device_.reserved_bytes += bytes;
  device_.jobs += 1;
  device_.running.push_back({.key = KeyOf(job), .bytes = bytes});
  if (left_) *left_ -= bytes;
}

void Room::KeepFor(const QueuedJob& job) {
  const int64_t needs = LeastOn(job, device_);
  if (left_ || needs < 0) return;
  left_ = std::min(BesideAllBehind(KeyOf(job), needs), AtReservedStart(needs));
}

// Had all that is ahead of the head ended: what it leaves of the device, less what runs behind it.
int64_t Room::BesideAllBehind(const JobQueue::Key& head, int64_t needs) const {
  int64_t left = device_.capacity_bytes - needs;
  for (const RunningJob& job : device_.running)
    if (head < job.key) left -= job.bytes;
  return left;
}

// INT64_MAX: others have taken too much for any start to be foreseen.
int64_t Room::AtReservedStart(int64_t needs) const {
  std::vector<RunningJob> running = device_.running;
  std::sort(running.begin(), running.end(),
            [](const RunningJob& a, const RunningJob& b) { return a.end_us < b.end_us; });
  int64_t left = device_.capacity_bytes - device_.reserved_bytes - device_.taken_bytes - needs;
  for (size_t i = 0; i < running.size(); ++i) {
    left += running[i].bytes;
    const bool more_end = i + 1 < running.size() && running[i + 1].end_us == running[i].end_us;
    if (!more_end && left >= 0) return left;
  }
  return INT64_MAX;
}

std::string Room::ReasonFor(const QueuedJob& job) const {
  if (!device_.trouble.empty()) return device_.trouble;
  if (device_.jobs >= device_.max_jobs && device_.max_jobs == 1) return "another job runs there";
  if (device_.jobs >= device_.max_jobs)
    return absl::StrCat(device_.jobs, " jobs run there, which is the most at once");
  const int64_t free = std::max<int64_t>(0, Free());
  if (FastestWithin(job, device_.name, free, Threads()) >= 0) return "";
  const int64_t without_others = free + device_.taken_bytes;
  if (device_.taken_bytes > 0 && FastestWithin(job, device_.name, without_others, Threads()) >= 0)
    return absl::StrCat("others have taken ", FormatBytes(device_.taken_bytes), " of it");
  return absl::StrCat("it needs ", FormatBytes(LeastOn(job, device_)), "; ", FormatBytes(free),
                      " are free beside ", device_.jobs, device_.jobs == 1 ? " job" : " jobs");
}

}  // namespace snug::server

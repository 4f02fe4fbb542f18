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

// Under every plan, wherever it goes.
bool NeedsHost(const QueuedJob& job) {
  return std::all_of(job.plans.begin(), job.plans.end(), [](const auto& there) {
    return std::all_of(there.second.begin(), there.second.end(),
                       [](const PlanNeeds& needs) { return needs.host_bytes > 0; });
  });
}

JobQueue::Key KeyOf(const QueuedJob& job) { return {-job.priority, job.order, job.id}; }

bool BearsNobodyMore(const RunningJob& job, const DeviceState& device) {
  return device.jobs - 1 >= job.bears;
}

}  // namespace

int64_t LeastOn(const QueuedJob& job, const DeviceState& device) {
  const auto plans = job.plans.find(device.name);
  if (plans == job.plans.end() || plans->second.empty()) return -1;
  int64_t alone = INT64_MAX, with_host = INT64_MAX;
  for (const PlanNeeds& needs : plans->second) {
    int64_t& least = needs.host_bytes == 0 ? alone : with_host;
    if (needs.host_bytes <= device.host_capacity_bytes) least = std::min(least, needs.bytes);
  }
  const int64_t most = std::min(device.capacity_bytes, job.budget_bytes);
  return alone <= most ? alone : with_host <= most ? with_host : -1;
}

bool IsKeptOff(const JobQueue::Key& key, const DeviceState& device) {
  return std::any_of(device.running.begin(), device.running.end(), [&](const RunningJob& job) {
    return BearsNobodyMore(job, device) && job.key < key;
  });
}

// Asked of every job of a long queue, and seldom true: no key is made for nothing.
bool Room::KeepsOff(const QueuedJob& job) const {
  const auto bears_nobody_more = [&](const RunningJob& there) {
    return BearsNobodyMore(there, device_);
  };
  return !job.no_steps &&
         std::any_of(device_.running.begin(), device_.running.end(), bears_nobody_more) &&
         IsKeptOff(KeyOf(job), device_);
}

SharedWeights Room::SharedBy(const QueuedJob& job) const {
  const auto shared = job.shared.find(device_.name);
  return shared == job.shared.end() ? SharedWeights() : shared->second;
}

int Room::Fastest(const QueuedJob& job) const {
  if (KeepsOff(job)) return -1;
  return FastestWithin(
      job, {.free = Free(), .left = left_.value_or(INT64_MAX), .host = device_.host_free_bytes});
}

int Room::FastestWithin(const QueuedJob& job, const Limits& limits) const {
  const auto plans = job.plans.find(device_.name);
  if (plans == job.plans.end()) return -1;
  const SharedWeights shared = SharedBy(job);
  const int threads = Threads();
  const int64_t most = std::min(job.budget_bytes, ShareLeft(job));
  for (size_t plan = 0; plan < plans->second.size(); ++plan) {
    const PlanNeeds& needs = plans->second[plan];
    const bool fits = device_.shared.Beside(needs.bytes, shared) <= limits.free &&
                      BesideHead(needs.bytes, shared) <= limits.left &&
                      needs.host_bytes <= limits.host;
    if (fits && needs.bytes <= most && needs.threads <= threads) return static_cast<int>(plan);
  }
  return -1;
}

int64_t Room::Free() const {
  if (!device_.trouble.empty() || device_.jobs >= device_.max_jobs) return -1;
  return device_.capacity_bytes - device_.reserved_bytes - device_.taken_bytes;
}

int64_t Room::Offer() const { return left_ ? std::min(Free(), *left_) : Free(); }

int64_t Room::ShareLeft(const QueuedJob& job) const {
  if (job.share_bytes == INT64_MAX) return INT64_MAX;
  int64_t left = job.share_bytes;
  for (const RunningJob& running : device_.running)
    if (running.owner == job.owner) left -= running.bytes;
  return left;
}

bool Room::WithinShare(const QueuedJob& job) const {
  const int64_t needs = LeastOn(job, device_);
  return needs >= 0 && needs <= ShareLeft(job);
}

bool Room::MayTake(const QueuedJob& job) const { return WithinShare(job) && !KeepsOff(job); }

// One of 1, 2, 3-4, 5-8, ... jobs: the whole, a half, a quarter, an eighth.
int Room::Threads() const {
  if (device_.shares.empty()) return kAnyThreads;
  const size_t halvings = std::bit_width(static_cast<unsigned>(device_.jobs));
  return device_.shares[std::min(halvings, device_.shares.size() - 1)];
}

void Room::Place(const QueuedJob& job, int64_t bytes) {
  const SharedWeights shared = SharedBy(job);
  device_.reserved_bytes += device_.shared.Add(bytes, shared);
  device_.jobs += 1;
  device_.running.push_back(
      {.key = KeyOf(job), .bytes = bytes, .shared = shared, .owner = job.owner});
  if (left_) *left_ -= BesideHead(bytes, shared);
}

void Room::KeepFor(const QueuedJob& job) {
  const int64_t needs = LeastOn(job, device_);
  if (left_ || (needs >= 0 && !MayTake(job))) return;
  if (NeedsHost(job)) device_.host_free_bytes = 0;
  if (needs < 0) return;
  left_ = std::min(BesideAllBehind(job, needs), AtReservedStart(job, needs));
  head_shared_ = SharedBy(job);
}

// Had all that is ahead of the head ended: what it leaves of the device, less what runs behind it.
int64_t Room::BesideAllBehind(const QueuedJob& head, int64_t needs) const {
  SharedCount shared;
  int64_t left = device_.capacity_bytes - shared.Add(needs, SharedBy(head));
  for (const RunningJob& job : device_.running)
    if (KeyOf(head) < job.key) left -= shared.Add(job.bytes, job.shared);
  return left;
}

// INT64_MAX: others have taken too much for any start to be foreseen.
int64_t Room::AtReservedStart(const QueuedJob& head, int64_t needs) const {
  std::vector<RunningJob> running = device_.running;
  std::sort(running.begin(), running.end(),
            [](const RunningJob& a, const RunningJob& b) { return a.end_us < b.end_us; });
  SharedCount shared = device_.shared;
  int64_t free = device_.capacity_bytes - device_.reserved_bytes - device_.taken_bytes;
  for (size_t i = 0; i < running.size(); ++i) {
    free += shared.Remove(running[i].bytes, running[i].shared);
    const bool more_end = i + 1 < running.size() && running[i + 1].end_us == running[i].end_us;
    const int64_t left = free - shared.Beside(needs, SharedBy(head));
    if (!more_end && left >= 0) return left;
  }
  return INT64_MAX;
}

std::string Room::ReasonFor(const QueuedJob& job) const {
  if (!device_.trouble.empty()) return device_.trouble;
  if (device_.jobs >= device_.max_jobs && device_.max_jobs == 1) return "another job runs there";
  if (device_.jobs >= device_.max_jobs)
    return absl::StrCat(device_.jobs, " jobs run there, which is the most at once");
  if (KeepsOff(job)) return "a job that is ahead of it there would be slowed more than it allows";
  if (!WithinShare(job))
    return absl::StrCat("it needs ", FormatBytes(LeastOn(job, device_)),
                        "; of its tenant's share, ", FormatBytes(job.share_bytes), ", ",
                        FormatBytes(std::max<int64_t>(0, ShareLeft(job))), " are left");
  const int64_t free = std::max<int64_t>(0, Free());
  if (FastestWithin(job, {.free = free, .host = device_.host_free_bytes}) >= 0) return "";
  if (FastestWithin(job, {.free = free}) >= 0)
    return absl::StrCat("it needs more of the host's memory than the ",
                        FormatBytes(device_.host_free_bytes), " that are free");
  const int64_t without_others = free + device_.taken_bytes;
  if (device_.taken_bytes > 0 && FastestWithin(job, {.free = without_others}) >= 0)
    return absl::StrCat("others have taken ", FormatBytes(device_.taken_bytes), " of it");
  const int64_t least = device_.shared.Beside(LeastOn(job, device_), SharedBy(job));
  return absl::StrCat("it needs ", FormatBytes(least), "; ", FormatBytes(free), " are free beside ",
                      device_.jobs, device_.jobs == 1 ? " job" : " jobs");
}

}  // namespace snug::server

// The policy over many rounds on a virtual clock: jobs of random sizes and lengths come, are
// placed, end and are tried again, the daemon is started anew; what must hold at every moment is
// checked at every event. Each seed is one world.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "server/place/ledger.h"
#include "server/place/policy.h"

namespace snug::server {
namespace {

constexpr int64_t kCapacity = 1000;
constexpr int64_t kHostBytes = 500;
constexpr int64_t kNever = INT64_MAX;

struct Job {
  QueuedJob queued;
  int64_t arrives_us = 0;
  int64_t takes_us = 0;
  int64_t started_us = kNever;  // Once it runs.
  int64_t ends_us = kNever;
  int64_t promised_us = kNever;  // Once it has been the head: it starts no later.
  std::string device;
  int64_t bytes = 0;
  int64_t host_bytes = 0;

  const SharedWeights& shared() const { return queued.shared.begin()->second; }  // Everywhere.
};

// What the daemon knows of when a job ends.
enum class Estimates { kExact, kNone, kWrong };

class World {
 public:
  World(int seed, int devices, Estimates estimates)
      : random_(static_cast<unsigned>(seed)), estimates_(estimates) {
    for (int i = 0; i < devices; ++i)
      devices_.push_back({.name = "cpu:" + std::to_string(i), .capacity_bytes = kCapacity});
    ledger_ = std::make_unique<Ledger>(devices_, kHostBytes);
  }

  void Add(int64_t arrives_us, int priority, int64_t least_bytes, int64_t takes_us,
           const SharedWeights& shared = {}) {
    const auto number = static_cast<int64_t>(jobs_.size());
    Job job{.arrives_us = arrives_us, .takes_us = takes_us};
    job.queued = {.id = "job-" + std::to_string(number),
                  .priority = priority,
                  .order = 1000 * arrives_us + number};
    for (const Device& device : devices_) {
      const int64_t base = shared.bytes;
      job.queued.plans[device.name] = {base + 3 * least_bytes, base + 2 * least_bytes,
                                       base + least_bytes};
      job.queued.shared[device.name] = shared;
    }
    jobs_[job.queued.id] = job;
  }

  void AddRandom(int jobs, int priorities) {
    for (int i = 0; i < jobs; ++i)
      Add(Draw(0, 5000), Draw(1, priorities), Draw(1, 10) < 9 ? Draw(1, 300) : Draw(500, 1000),
          Draw(1, 1000));
  }

  // Over a few bases, and some over none.
  void AddSharers(int jobs, int priorities) {
    for (int i = 0; i < jobs; ++i) {
      const int base = Draw(0, 3);
      const SharedWeights shared = {base > 0 ? "base-" + std::to_string(base) : "", 150 * base};
      Add(Draw(0, 5000), Draw(1, priorities), Draw(1, 10) < 9 ? Draw(1, 200) : Draw(300, 550),
          Draw(1, 1000), shared);
    }
  }

  // Some of those that are there use the host's memory under every plan.
  void UseHost() {
    for (auto& [id, job] : jobs_) {
      job.host_bytes = Draw(1, 4) == 1 ? Draw(1, kHostBytes) : 0;
      for (auto& [device, plans] : job.queued.plans)
        for (PlanNeeds& needs : plans) needs.host_bytes = job.host_bytes;
    }
  }

  // To the end of all jobs; from one event to the next.
  void Run() {
    while (NextEvent() < kNever) {
      now_us_ = NextEvent();
      for (auto& [id, job] : jobs_) {
        if (job.arrives_us == now_us_) queue_.Put(job.queued);
        if (job.ends_us == now_us_) End(job);
      }
      if (Draw(1, 50) == 1) StartAnew();
      Round();
    }
  }

  const Job& At(const std::string& id) const { return jobs_.at(id); }
  int64_t longest_wait_behind() const { return most_overdue_us_; }
  bool all_ended() const {
    return queue_.size() == 0 && std::all_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
             return entry.second.ends_us == kNever && !entry.second.device.empty();
           });
  }
  int most_at_once() const { return most_at_once_; }

 private:
  int Draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }

  int64_t NextEvent() const {
    int64_t next = kNever;
    for (const auto& [id, job] : jobs_) {
      if (job.arrives_us > now_us_) next = std::min(next, job.arrives_us);
      if (job.ends_us < kNever) next = std::min(next, job.ends_us);
    }
    return next;
  }

  void End(Job& job) {
    ledger_->Release(job.queued.id);
    job.ends_us = kNever;
    if (Draw(1, 20) != 1) return;
    queue_.Put(job.queued);  // Its worker was lost: it is before those that came later, again.
    for (auto& [id, other] : jobs_) other.promised_us = kNever;
  }

  // The ledger is made again from the promises in the store.
  void StartAnew() {
    ledger_ = std::make_unique<Ledger>(devices_, kHostBytes);
    for (const auto& [id, job] : jobs_)
      if (job.ends_us < kNever)
        ledger_->Restore(job.device, id, {job.bytes, job.shared(), job.host_bytes});
  }

  int64_t Estimate(const Job& job) {
    if (estimates_ == Estimates::kExact) return job.ends_us;
    if (estimates_ == Estimates::kNone) return kNever;
    return now_us_ + Draw(0, 2000);
  }

  std::vector<DeviceState> States() {
    std::vector<DeviceState> states = ledger_->Snapshot();
    for (DeviceState& state : states)
      for (const auto& [id, job] : jobs_)
        if (job.ends_us < kNever && job.device == state.name)
          state.running.push_back({.key = {-job.queued.priority, job.queued.order, id},
                                   .bytes = job.bytes,
                                   .shared = job.shared(),
                                   .end_us = Estimate(job)});
    return states;
  }

  void Round() {
    const std::vector<DeviceState> before = States();
    for (const Placement& placement : Decide(queue_, before, now_us_).placements) {
      Job& job = jobs_.at(placement.job);
      const Promise promise = {placement.bytes, job.shared(), job.host_bytes};
      ASSERT_TRUE(ledger_->Reserve(placement.device, placement.job, promise).ok());
      if (job.promised_us < kNever)
        most_overdue_us_ = std::max(most_overdue_us_, now_us_ - job.promised_us);
      queue_.Remove(placement.job);
      job.device = placement.device;
      job.bytes = placement.bytes;
      job.started_us = now_us_;
      job.ends_us = now_us_ + job.takes_us;
    }
    for (const DeviceState& state : ledger_->Snapshot()) {
      ASSERT_LE(state.reserved_bytes, kCapacity) << state.name << " at " << now_us_;
      ASSERT_EQ(state.reserved_bytes, HeldOn(state.name));
      ASSERT_GE(state.host_free_bytes, 0);
      most_at_once_ = std::max(most_at_once_, state.jobs);
    }
    Foresee();
  }

  // By hand: own bytes of all, and each base once.
  int64_t HeldOn(const std::string& device) const {
    int64_t bytes = 0;
    std::map<std::string, int64_t> bases;
    for (const auto& [id, job] : jobs_) {
      if (job.ends_us == kNever || job.device != device) continue;
      bytes += job.bytes - job.shared().bytes;
      bases[job.shared().digest] = job.shared().bytes;
    }
    for (const auto& [digest, base] : bases) bytes += base;
    return bytes;
  }

  // The head of the queue, from the first round that leaves it behind: with nobody after it, it
  // would start when enough of what runs has ended. Without estimates, which there are none of for
  // what starts in this round: when all of it has.
  void Foresee() {
    if (queue_.size() == 0) return;
    Job& head = jobs_.at(queue_.in_order().begin()->second.id);
    if (head.promised_us < kNever) return;
    for (const Device& device : devices_)
      head.promised_us = std::min(head.promised_us, StartOn(device.name, head));
  }

  int64_t StartOn(const std::string& device, const Job& head) {
    std::multimap<int64_t, const Job*> ends;
    SharedCount shared;
    int64_t free = kCapacity, last = now_us_;
    for (const auto& [id, job] : jobs_) {
      const bool goes_past = job.started_us == now_us_ && job.queued.order > head.queued.order;
      if (job.ends_us == kNever || job.device != device || goes_past) continue;
      free -= shared.Add(job.bytes, job.shared());
      last = std::max(last, job.ends_us);
      if (job.started_us < now_us_) ends.emplace(job.ends_us, &job);
    }
    if (estimates_ != Estimates::kExact) return last;
    const int64_t needs = head.queued.plans.at(device).back().bytes;
    for (const auto& [end, job] : ends) {
      free += shared.Remove(job->bytes, job->shared());
      if (free >= shared.Beside(needs, head.shared())) return end;
    }
    return last;
  }

  std::mt19937 random_;
  const Estimates estimates_;
  std::vector<Device> devices_;
  std::unique_ptr<Ledger> ledger_;
  JobQueue queue_;
  std::map<std::string, Job> jobs_;
  int64_t now_us_ = -1;
  int64_t most_overdue_us_ = INT64_MIN;
  int most_at_once_ = 0;
};

class PackingTest : public testing::TestWithParam<Estimates> {};

// With exact estimates no head starts later than it would with nobody behind it; with none, or with
// wrong ones, none later than the last end of what ran when it became the head. Of one priority:
// jobs of a higher one that come later are before it by right.
TEST_P(PackingTest, NoHeadWaitsForThoseBehindIt) {
  for (int seed = 0; seed < 100; ++seed) {
    World world(seed, 1 + seed % 3, GetParam());
    world.AddRandom(150, 1);
    world.Run();
    ASSERT_LE(world.longest_wait_behind(), 0) << "seed " << seed;
    ASSERT_TRUE(world.all_ended()) << "seed " << seed;
    ASSERT_GT(world.most_at_once(), 3) << "seed " << seed;
  }
}

// The sum of what is promised is checked at every event.
TEST_P(PackingTest, PromisesFitWhateverComes) {
  for (int seed = 0; seed < 100; ++seed) {
    World world(seed, 1 + seed % 4, GetParam());
    world.AddRandom(150, 4);
    if (seed % 2 == 1) world.UseHost();
    world.Run();
    ASSERT_TRUE(world.all_ended()) << "seed " << seed;
  }
}

// What jobs have in common counts once, and keeps no head waiting: neither what comes free when the
// last of them ends, nor what stays when one of those behind the head goes on with it.
TEST_P(PackingTest, SharedWeightsCountOnceAndDelayNobody) {
  for (int seed = 0; seed < 30; ++seed) {
    World world(seed, 1 + seed % 3, GetParam());
    world.AddSharers(150, 1);
    world.Run();
    ASSERT_LE(world.longest_wait_behind(), 0) << "seed " << seed;
    ASSERT_TRUE(world.all_ended()) << "seed " << seed;
    ASSERT_GT(world.most_at_once(), 3) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Estimates, PackingTest,
                         testing::Values(Estimates::kExact, Estimates::kNone, Estimates::kWrong));

// One that needs the whole device, in a stream of small ones that would keep it busy for ever.
TEST(StarvationTest, ALargeJobStartsWhenThoseBeforeItHaveEnded) {
  World world(1, 1, Estimates::kNone);
  for (int64_t i = 0; i < 100; ++i) world.Add(i * 10, 0, 100, 300);
  world.Add(55, 0, kCapacity, 100);
  for (int64_t i = 0; i < 100; ++i) world.Add(1000 + i * 10, 0, 100, 300);
  world.Run();
  EXPECT_TRUE(world.all_ended());
  EXPECT_LE(world.longest_wait_behind(), 0);
}

}  // namespace
}  // namespace snug::server

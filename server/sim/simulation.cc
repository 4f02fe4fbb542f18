#include "server/sim/simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/sim/interference.h"

namespace snug::server::sim {
namespace {

constexpr int64_t kNever = INT64_MAX;
// At one moment, where a change of plan takes no time: what it frees is given away in the next.
constexpr int kMostRounds = 64;

double Seconds(int64_t us) { return static_cast<double>(us) / 1e6; }

int64_t After(int64_t now_us, double us) {
  return now_us + std::max<int64_t>(1, static_cast<int64_t>(std::ceil(us)));
}

// When something happens to the attempt next.
int64_t NextOf(const Attempt& attempt) {
  int64_t next = attempt.end_us;
  if (!attempt.steps) next = std::min(next, attempt.loads_until);
  if (!attempt.peaked) next = std::min(next, attempt.peaks_at);
  if (attempt.next_plan >= 0) next = std::min(next, attempt.next_plan_at);
  return next;
}

}  // namespace

Simulation::Simulation(std::vector<Job> jobs, std::vector<SimDevice> devices, Policy& policy,
                       SimOptions options)
    : jobs_(std::move(jobs)), policy_(policy), options_(options) {
  std::stable_sort(jobs_.begin(), jobs_.end(),
                   [](const Job& a, const Job& b) { return a.arrives_us < b.arrives_us; });
  for (size_t i = 0; i < devices.size(); ++i) devices[i].whole = i;
  for (SimDevice& device : policy_.Divide(std::move(devices)))
    world_.places.push_back({.device = std::move(device)});
  outcome_.jobs = static_cast<int64_t>(jobs_.size());
}

absl::StatusOr<Outcome> Simulation::Run() {
  for (int64_t next = NextEvent(); next != kNever; next = NextEvent()) {
    AdvanceTo(next);
    Arrive();
    for (size_t place = 0; place < world_.places.size(); ++place) HappenIn(place);
    RETURN_IF_ERROR(Decide());
    for (Place& place : world_.places) SetSpeeds(place);
    RETURN_IF_ERROR(Check());
  }
  if (!world_.jobs.empty())
    return absl::InternalError(absl::StrCat(world_.jobs.size(), " jobs wait for ever, among them ",
                                            world_.jobs.begin()->first));
  if (!jobs_.empty()) outcome_.makespan_s = Seconds(world_.now_us - jobs_.front().arrives_us);
  outcome_.starved = static_cast<int64_t>(starved_.size());
  return std::move(outcome_);
}

int64_t Simulation::NextEvent() const {
  int64_t next = arrived_ < jobs_.size() ? jobs_[arrived_].arrives_us : kNever;
  for (const Place& place : world_.places)
    for (const Attempt& attempt : place.attempts) next = std::min(next, NextOf(attempt));
  return next;
}

void Simulation::AdvanceTo(int64_t now_us) {
  const double passed_us = static_cast<double>(now_us - world_.now_us);
  std::set<size_t> busy;
  for (Place& place : world_.places) {
    for (Attempt& attempt : place.attempts) attempt.left_us -= attempt.speed * passed_us;
    if (!place.attempts.empty()) busy.insert(place.device.whole);
    outcome_.job_s += passed_us / 1e6 * static_cast<double>(place.attempts.size());
  }
  outcome_.busy_device_s += passed_us / 1e6 * static_cast<double>(busy.size());
  world_.now_us = now_us;
}

void Simulation::Arrive() {
  for (; arrived_ < jobs_.size() && jobs_[arrived_].arrives_us <= world_.now_us; ++arrived_) {
    const Job& job = jobs_[arrived_];
    world_.jobs[job.id] = &job;
    world_.queue.Put(QueuedAs(job, world_.places));
    Note(Event::kArrive, job.id, 0, 0);
  }
}

// All that is due now, in the order of placement. What a job that reaches its peak finds taken is
// what it dies of.
void Simulation::HappenIn(size_t index) {
  Place& place = world_.places[index];
  std::vector<Attempt> left;
  for (size_t i = 0; i < place.attempts.size(); ++i) {
    Attempt& attempt = place.attempts[i];
    if (attempt.end_us <= world_.now_us) {
      EndJob(attempt, index);
      attempt.peaked = false;
      continue;
    }
    if (attempt.next_plan >= 0 && attempt.next_plan_at <= world_.now_us) TakePlan(attempt, index);
    if (!attempt.steps && attempt.loads_until <= world_.now_us) {
      attempt.steps = true;
      Note(Event::kStep, attempt.job->id, index, attempt.plan);
    }
    if (!attempt.peaked && attempt.peaks_at <= world_.now_us) {
      attempt.peaked = true;
      Note(Event::kPeak, attempt.job->id, index, attempt.plan);
      if (place.HeldBytes() > place.device.capacity_bytes) {
        Requeue(attempt, index);
        attempt.peaked = false;
        continue;
      }
    }
    left.push_back(attempt);
  }
  place.attempts = std::move(left);
}

void Simulation::TakePlan(Attempt& attempt, size_t place) {
  attempt.plan = std::exchange(attempt.next_plan, -1);
  attempt.reserved_bytes = attempt.job->plan(attempt.plan).bytes;
  Note(Event::kNewPlan, attempt.job->id, place, attempt.plan);
}

void Simulation::SetSpeeds(Place& place) const {
  int at_work = 0;
  for (const Attempt& attempt : place.attempts) at_work += attempt.steps ? 1 : 0;
  const double beside = SpeedBeside(at_work, place.Utilisation(), options_.interference);
  for (Attempt& attempt : place.attempts) {
    const Job& job = *attempt.job;
    if (!attempt.steps) continue;
    const double allowed = std::min(1.0, place.device.compute / job.utilisation);
    const double of_plan = job.plan(0).seconds / job.plan(attempt.plan).seconds;
    const double speed = of_plan * beside * allowed;
    if (speed == attempt.speed) continue;
    attempt.speed = speed;
    attempt.end_us = After(world_.now_us, attempt.left_us / attempt.speed);
  }
}

absl::Status Simulation::Decide() {
  bool again = true;
  for (int rounds = 0; again && rounds < kMostRounds; ++rounds) {
    const Round round = policy_.Decide(world_);
    for (const std::string& id : round.refused) RETURN_IF_ERROR(Refuse(id));
    for (const Start& start : round.starts) RETURN_IF_ERROR(StartJob(start));
    for (const Change& change : round.changes) RETURN_IF_ERROR(ChangePlan(change));
    again = std::any_of(round.changes.begin(), round.changes.end(),
                        [](const Change& change) { return change.at_once; });
  }
  return absl::OkStatus();
}

absl::Status Simulation::Refuse(const std::string& id) {
  if (world_.queue.Find(id) == nullptr)
    return absl::InternalError(absl::StrCat("job ", id, " is refused and does not wait"));
  world_.queue.Remove(id);
  world_.jobs.erase(id);
  ++outcome_.refused;
  Note(Event::kRefuse, id, 0, 0);
  return absl::OkStatus();
}

absl::Status Simulation::StartJob(const Start& start) {
  const QueuedJob* const queued = world_.queue.Find(start.job);
  if (queued == nullptr)
    return absl::InternalError(absl::StrCat("job ", start.job, " is started and does not wait"));
  const JobQueue::Key key(-queued->priority, queued->order, queued->id);
  const Job& job = *world_.jobs.at(start.job);
  world_.queue.Remove(start.job);
  Attempt attempt{.job = &job,
                  .key = key,
                  .plan = start.plan,
                  .reserved_bytes = start.bytes,
                  .loads_until = world_.now_us + options_.load_us,
                  .left_us = static_cast<double>(job.work_us)};
  attempt.peaks_at = attempt.loads_until + options_.peak_us;
  world_.places[start.place].attempts.push_back(attempt);
  started_us_[start.job] = world_.now_us;
  Note(Event::kStart, start.job, start.place, start.plan);
  return absl::OkStatus();
}

absl::Status Simulation::ChangePlan(const Change& change) {
  std::vector<Attempt>& attempts = world_.places[change.place].attempts;
  const auto attempt = std::find_if(attempts.begin(), attempts.end(), [&](const Attempt& each) {
    return each.job->id == change.job;
  });
  if (attempt == attempts.end() || attempt->next_plan >= 0 || !attempt->steps)
    return absl::InternalError(absl::StrCat("job ", change.job, " cannot change its plan now"));
  const int64_t before = attempt->reserved_bytes;
  const int64_t after = attempt->job->plan(change.plan).bytes;
  (after < before ? outcome_.squeezes : outcome_.relaxes) += 1;
  Note(Event::kOrder, change.job, change.place, change.plan);
  attempt->next_plan = change.plan;
  attempt->reserved_bytes = std::max(before, after);
  if (change.at_once) {
    TakePlan(*attempt, change.place);
    return absl::OkStatus();
  }
  const Job& job = *attempt->job;
  const double slowed = attempt->speed * job.plan(attempt->plan).seconds / job.plan(0).seconds;
  attempt->next_plan_at =
      After(world_.now_us, job.plan(attempt->plan).seconds * 1e6 / std::max(slowed, 1e-3));
  return absl::OkStatus();
}

void Simulation::EndJob(const Attempt& attempt, size_t place) {
  const Job& job = *attempt.job;
  Note(Event::kEnd, job.id, place, attempt.plan);
  outcome_.completion_s.push_back(Seconds(world_.now_us - job.arrives_us));
  outcome_.wait_s.push_back(Seconds(started_us_.at(job.id) - job.arrives_us));
  ++outcome_.ended;
  world_.jobs.erase(job.id);
  ahead_of_head_.erase(job.id);
}

// It keeps its place in the queue's order, and has nothing of what it did.
void Simulation::Requeue(const Attempt& attempt, size_t place) {
  const Job& job = *attempt.job;
  Note(Event::kOom, job.id, place, attempt.plan);
  ++outcome_.oom_requeues;
  ++world_.oom_failures[job.id];
  world_.queue.Put(QueuedAs(job, world_.places));
  ahead_of_head_.erase(job.id);
}

absl::Status Simulation::Check() {
  RETURN_IF_ERROR(CheckPlaces());
  return CheckOrder();
}

absl::Status Simulation::CheckPlaces() const {
  std::set<std::string> seen;
  for (const Place& place : world_.places) {
    const int64_t capacity = place.device.capacity_bytes;
    const int64_t reserved = place.ReservedBytes(), held = place.HeldBytes();
    if (held > capacity || (policy_.keeps_a_ledger() && (reserved > capacity || held > reserved)))
      return absl::InternalError(absl::StrCat(place.device.name, " has ", capacity, " bytes; ",
                                              reserved, " are promised and ", held, " held"));
    if (place.device.one_job && place.attempts.size() > 1)
      return absl::InternalError(absl::StrCat(place.device.name, " has more than one job"));
    for (const Attempt& attempt : place.attempts)
      if (!seen.insert(attempt.job->id).second || world_.queue.Find(attempt.job->id) != nullptr)
        return absl::InternalError(absl::StrCat("job ", attempt.job->id, " is in two places"));
  }
  const auto gone = static_cast<size_t>(outcome_.ended + outcome_.refused);
  if (seen.size() + world_.queue.size() != world_.jobs.size() ||
      world_.jobs.size() + gone != arrived_)
    return absl::InternalError(absl::StrCat(arrived_, " jobs came: ", world_.queue.size(),
                                            " wait, ", seen.size(), " run, ", gone, " are gone"));
  return absl::OkStatus();
}

absl::Status Simulation::CheckOrder() {
  const auto& in_order = world_.queue.in_order();
  if (in_order.empty()) {
    head_.clear();
    return absl::OkStatus();
  }
  const auto& [key, first] = *in_order.begin();
  const bool is_new = std::exchange(head_, first.id) != first.id;
  if (is_new) ahead_of_head_.clear();
  for (const Place& place : world_.places)
    for (const Attempt& attempt : place.attempts)
      if (is_new || attempt.key < key) ahead_of_head_.insert(attempt.job->id);
  if (!ahead_of_head_.empty()) return absl::OkStatus();
  starved_.insert(first.id);
  if (!policy_.keeps_the_order()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("job ", first.id, " waits first, and all that ran when ",
                                          "it began to has ended"));
}

void Simulation::Note(Event event, const std::string& job, size_t place, int plan) {
  ++outcome_.events;
  const auto mix = [this](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {  // FNV-1a.
      outcome_.digest ^= (value >> (8 * byte)) & 0xff;
      outcome_.digest *= 0x100000001b3;
    }
  };
  mix(static_cast<uint64_t>(world_.now_us));
  mix(static_cast<uint64_t>(event));
  for (const char letter : job) mix(static_cast<uint64_t>(static_cast<unsigned char>(letter)));
  mix(place);
  mix(static_cast<uint64_t>(plan));
}

}  // namespace snug::server::sim

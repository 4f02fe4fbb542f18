// Plans of running jobs that the scheduler changes. Each test has one job that runs alone and is
// measured in units of its plans, and perhaps another one like it.
#include "server/scheduler/plan_changes.h"

#include <gmock/gmock.h>

#include <future>

#include "absl/strings/match.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {
namespace {

using testing::HasSubstr;

constexpr const char* kOther = "job-2";
constexpr const char* kLong = "steps=100000 step_ms=20";

class PlanChangesTest : public SchedulerTest {
 protected:
  PlanChangesTest() { device_.context_bytes = 4096; }
  ~PlanChangesTest() override {  // Workers outlive a scheduler.
    for (const char* id : {kJob, kOther})
      if (index_.Find(id).ok()) {
        Cancel(id);
        Cancelled(id);
      }
  }

  void Store(const std::string& id, int priority = 0, const std::string& script = kLong) {
    StoreJob(
        {.id = id, .order = id == kJob ? 1 : 2, .priority = priority, .rows = 8, .script = script});
  }

  absl::StatusOr<v1::Job> Squeeze(int64_t bytes, const std::string& id = kJob) {
    v1::SqueezeJobRequest request;
    request.set_id(id);
    request.set_bytes(bytes);
    std::promise<absl::StatusOr<v1::Job>> reply;
    scheduler_->Squeeze(request, [&](auto job) { reply.set_value(std::move(job)); });
    return reply.get_future().get();
  }
  absl::StatusOr<v1::Job> Relax() {
    v1::RelaxJobRequest request;
    request.set_id(kJob);
    std::promise<absl::StatusOr<v1::Job>> reply;
    scheduler_->Relax(request, [&](auto job) { reply.set_value(std::move(job)); });
    return reply.get_future().get();
  }
  v1::Job Steps(int64_t more = 2, const std::string& id = kJob) {
    const int64_t until = (*index_.Find(id))->progress().global_step() + more;
    return Await([&](const v1::Job& job) { return job.progress().global_step() >= until; }, id);
  }
  v1::Job Changed(int count) {
    return Await([&](const v1::Job& job) {
      return job.plan_changes().count() == count && !job.plan_changes().has_pending();
    });
  }

  // What is promised to the job; to all never more than there is.
  int64_t Reserved(const std::string& id = kJob) {
    const std::vector<v1::Device> devices = index_.devices();
    EXPECT_LE(devices.at(0).reserved_bytes(), device_.capacity_bytes);
    for (const v1::Reservation& each : devices.at(0).reservations())
      if (each.job() == id) return each.reserved_bytes();
    return 0;
  }

  // Runs the job, and finds what it likes and what it needs.
  void StartAndMeasure(SchedulerLimits limits = {}) {
    Start(limits);
    most_ = Steps().memory().budget_bytes();
    const absl::Status refused = Squeeze(1).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    const std::string text(refused.message());
    least_ = std::stoll(text.substr(text.rfind('(') + 1));
    ASSERT_LT(least_, most_);
  }
  // Beside which another one like it does not fit as it is.
  void StartOnTightDevice() {
    StartAndMeasure();
    scheduler_.reset();
    store_.reset();
    device_.capacity_bytes = most_ + least_ - 1;
  }

  int64_t most_ = 0, least_ = 0;
};

TEST_F(PlanChangesTest, ReservesTheLargerPlanUntilTheAnswer) {
  Store(kJob, 0, "steps=100000 step_ms=20 order_ms=300");
  StartAndMeasure();
  ASSERT_TRUE(Squeeze(least_).ok());
  EXPECT_EQ(Reserved(), most_);
  EXPECT_THAT(std::string(Relax().status().message()), HasSubstr("its plan is being changed"));
  EXPECT_EQ(Changed(1).memory().budget_bytes(), least_);
  EXPECT_EQ(Reserved(), least_);
  ASSERT_TRUE(Relax().ok());
  EXPECT_EQ(Reserved(), most_);
  EXPECT_EQ(Changed(2).memory().budget_bytes(), most_);
}

TEST_F(PlanChangesTest, AJobThatWaitsIsMadeRoomForUntilItLeaves) {
  Store(kJob);
  StartOnTightDevice();
  Store(kOther);
  Start({});
  const v1::Job squeezed = Changed(1);
  EXPECT_LT(squeezed.memory().budget_bytes(), most_);
  EXPECT_EQ(squeezed.plan_changes().changes(0).reason(), "makes room for job-2");
  EXPECT_EQ(Steps(2, kOther).state(), v1::Job::STATE_RUNNING);
  Reserved();
  Cancel(kOther);
  Cancelled(kOther);
  EXPECT_EQ(Changed(2).memory().budget_bytes(), most_);
}

// The same attempt goes on, within what it held, and is not led back to the plan that failed.
TEST_F(PlanChangesTest, AStepThatDoesNotFitIsMadeUnderASmallerPlan) {
  Store(kJob, 0, "steps=100000 step_ms=20 short_at=8 short_times=2");
  StartAndMeasure();
  const v1::Job twice = Changed(2);
  EXPECT_EQ(twice.plan_changes().changes(0).reason(), "a step did not fit");
  EXPECT_EQ(twice.plan_changes().changes(0).global_step(), 7);
  EXPECT_LT(twice.plan_changes().changes(0).bytes(), most_);
  EXPECT_LT(twice.plan_changes().changes(1).bytes(), twice.plan_changes().changes(0).bytes());
  EXPECT_EQ(Reserved(), twice.memory().budget_bytes());
  const v1::Job later = Steps(20);
  EXPECT_EQ(later.epoch(), 1);
  EXPECT_EQ(later.plan_changes().orders(), 2);
  // What was predicted was too little: more is reserved for the same plan.
  EXPECT_GT(later.memory().budget_bytes(), later.memory().predicted_peak_bytes());
}

TEST_F(PlanChangesTest, AStepThatFitsNoPlanEndsTheAttempt) {
  Store(kJob, 0, "steps=100000 step_ms=20 short_at=8 short_times=1000 only_epoch=1");
  StartAndMeasure();
  const v1::Job again = Await([](const v1::Job& job) { return job.epoch() == 2; });
  EXPECT_GT(again.plan_changes().orders(), 0);
  EXPECT_EQ(Steps(20).state(), v1::Job::STATE_RUNNING);
  EXPECT_LE(Reserved(), device_.capacity_bytes);
}

TEST_F(PlanChangesTest, AJobOfHigherPriorityIsNotSqueezedForALesserOne) {
  Store(kJob, /*priority=*/10);
  StartOnTightDevice();
  Store(kOther);
  Start({});
  Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_QUEUED; }, kOther);
  EXPECT_EQ(Steps(20).plan_changes().orders(), 0);
  EXPECT_EQ((*index_.Find(kOther))->state(), v1::Job::STATE_QUEUED);
}

TEST_F(PlanChangesTest, NobodyIsSqueezedBesideAsManyJobsAsMayRun) {
  Store(kJob);
  StartOnTightDevice();
  device_.max_jobs = 1;
  Store(kOther, /*priority=*/10);
  Start({});
  Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_QUEUED; }, kOther);
  EXPECT_EQ(Steps(20).plan_changes().orders(), 0);
}

// A restart between order and answer, and one after it.
TEST_F(PlanChangesTest, AnOrderOutlivesTheDaemon) {
  Store(kJob, 0, "steps=100000 step_ms=20 order_ms=1000");
  StartAndMeasure();
  ASSERT_TRUE(Squeeze(least_).ok());
  for (const int64_t reserved : {most_, least_}) {
    scheduler_.reset();
    store_.reset();
    Start({});
    EXPECT_EQ(Reserved(), reserved);
    const v1::Job job = Changed(1);
    EXPECT_EQ(job.epoch(), 1);
    EXPECT_EQ(job.memory().budget_bytes(), least_);
    EXPECT_EQ(Reserved(), least_);
  }
  EXPECT_EQ(Steps().plan_changes().orders(), 1);
}

// Over a change of the plan and a restart, and until the attempt ends.
TEST_F(PlanChangesTest, StepsThatAreTwiceAsSlowCorrectTheirPrediction) {
  const auto expect_twice = [](const v1::Job& job) {
    EXPECT_GT(job.plan().step_seconds(), 0.0);
    EXPECT_EQ(job.step_time().predicted_seconds(), job.plan().step_seconds());
    EXPECT_DOUBLE_EQ(job.step_time().corrected_seconds(), 2.0 * job.plan().step_seconds());
  };
  Store(kJob, 0, "steps=100000 step_ms=20 slow=2");
  StartAndMeasure();
  const v1::Job slow =
      Await([](const v1::Job& job) { return job.step_time().corrected_seconds() > 0.0; });
  EXPECT_GE(slow.progress().global_step(), 3);
  expect_twice(slow);
  ASSERT_TRUE(Squeeze(least_).ok());
  const v1::Job squeezed = Changed(1);
  EXPECT_GT(squeezed.plan().step_seconds(), slow.plan().step_seconds());
  expect_twice(squeezed);
  expect_twice(Steps(5));
  scheduler_.reset();
  store_.reset();
  expect_twice(JobStore::Open({.state_dir = dir_ + "/state"}).value()->FindJob(kJob)->job);
  Start({});
  expect_twice(Steps(5));
  Cancel(kJob);
  Cancelled(kJob);
  // The end is shown before it is counted.
  const auto told = [this] {
    return absl::StrContains(metrics_.Text(),
                             "snug_step_measured_to_predicted_ratio_sum{device=\"cpu:0\"} 2\n");
  };
  for (int tries = 0; tries < 500 && !told(); ++tries) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(told()) << metrics_.Text();
}

// However large the plans are that it might have elsewhere.
TEST_F(PlanChangesTest, NoAttemptMayBeMovedBeyondItsDevice) {
  Store(kJob);
  StartAndMeasure();
  EXPECT_GE(Steps().plan_changes().most_bytes(), most_);
  Cancel(kJob);
  Cancelled(kJob);
  scheduler_.reset();
  store_.reset();
  device_.capacity_bytes = most_ - 1;
  Store(kOther);
  Start({});
  const v1::Job job = Steps(2, kOther);
  EXPECT_LT(job.memory().budget_bytes(), most_);
  EXPECT_GE(job.plan_changes().most_bytes(), job.memory().budget_bytes());
  EXPECT_LE(job.plan_changes().most_bytes(), most_ - 1);
}

// Its worker's control group is as large as the largest plan that it had when it was placed.
TEST_F(PlanChangesTest, NoOrderGoesBeyondWhatTheKernelGives) {
  Store(kJob);
  StartAndMeasure();
  ASSERT_TRUE(Squeeze(least_).ok());
  Changed(1);
  scheduler_.reset();
  store_.reset();
  {
    auto store = JobStore::Open({.state_dir = dir_ + "/state"}).value();
    JobRecord record = store->FindJob(kJob).value();
    record.job.mutable_plan_changes()->set_most_bytes(least_);
    ASSERT_TRUE(store->Commit({.job = &record}).ok());
  }
  Start({});
  EXPECT_EQ(Steps(20).memory().budget_bytes(), least_);
  ASSERT_TRUE(Relax().ok());
  EXPECT_EQ(Steps(20).plan_changes().orders(), 1);
}

}  // namespace
}  // namespace snug::server

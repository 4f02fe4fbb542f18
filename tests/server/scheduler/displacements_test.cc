// Jobs that leave a device because they slow another one. Each test has one job that runs alone
// first, and then another one beside it that came later.
#include "server/scheduler/displacements.h"

#include <gmock/gmock.h>
#include <signal.h>

#include <future>

#include "absl/strings/match.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {
namespace {

using testing::HasSubstr;

constexpr const char* kOther = "job-2";
constexpr const char* kSteady = "steps=100000 step_ms=20 slow=1";
// Its steps take 10 times as long while the test says so: beside one other, with whom it shares the
// device's one thread, 5 times its fair share.
constexpr const char* kSlowAtTimes = "steps=100000 step_ms=20 slow=10 slow_now=1";
constexpr const char* kSlow = "steps=100000 step_ms=20 slow=10";
// Says that its steps take 10 ms, so 150 ms in all, and takes 15 s.
constexpr const char* kEndsSoon = "steps=15 step_ms=1000";

class DisplacementsTest : public SchedulerTest {
 protected:
  ~DisplacementsTest() override {  // Workers outlive a scheduler.
    for (const char* id : {kJob, kOther})
      if (index_.Find(id).ok()) {
        Cancel(id);
        Cancelled(id);
      }
  }

  void StartSoon() {
    Start({.interference_after = absl::Milliseconds(200), .keep_off = keep_off_});
  }
  // The first job has made as many steps alone as tell what is usual before the second one comes.
  void RunAloneThenBeside(const std::string& script, const std::string& other, int priority = 0) {
    StoreJob({.id = kJob, .order = 1, .script = script});
    StartSoon();
    Steps(2 * kTellingSteps);
    std::promise<absl::Status> reply;
    v1::JobSpec spec = SpecOf({.script = other});
    spec.set_priority(priority);
    scheduler_->Create({.spec = spec, .job_id = kOther},
                       [&](const auto& job) { reply.set_value(job.status()); });
    ASSERT_TRUE(reply.get_future().get().ok());
    Steps(2, kOther);
  }
  v1::Job Steps(int64_t more, const std::string& id = kJob) {
    const int64_t until = (*index_.Find(id))->progress().global_step() + more;
    return Await([&](const v1::Job& job) { return job.progress().global_step() >= until; }, id);
  }
  void BeSlow(bool slow) const {
    if (slow)
      WriteText(dir_ + "/slow", "");
    else
      fs::remove(dir_ + "/slow");
  }
  v1::Job Now(const std::string& id) const { return **index_.Find(id); }
  absl::Duration keep_off_ = absl::Hours(1);
  static bool HasLeft(const v1::Job& job) {
    return job.displacement().count() > 0 && !job.displacement().pending();
  }
};

TEST_F(DisplacementsTest, WhoSlowsAJobLeavesUntilThatHasEnded) {
  RunAloneThenBeside(kSlowAtTimes, kSteady);
  BeSlow(true);
  const v1::Job left = Await(HasLeft, kOther);
  BeSlow(false);
  EXPECT_EQ(left.state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(left.displacement().count(), 1);
  EXPECT_EQ(left.displacement().reason(),
            "slows job-1, which takes 5 times its fair share of time (max_slowdown is 1.5)");
  EXPECT_THAT(metrics_.Text(), HasSubstr("snug_jobs_displaced_total{device=\"cpu:0\"} 1\n"));
  // The device has room for it, and does not take it.
  const v1::Job alone = Steps(3 * kTellingSteps);
  EXPECT_EQ(alone.epoch(), 1);
  EXPECT_EQ(alone.reason(), "is training");
  EXPECT_EQ(alone.step_time().slowdown(), 0.0);
  EXPECT_EQ(Now(kOther).epoch(), 1);
  EXPECT_EQ(Now(kOther).state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(Now(kOther).reason(),
            "waits for cpu:0: a job that is ahead of it there would be slowed more than it allows");
  Cancel(kJob);
  Cancelled();
  const v1::Job again = Await(
      [](const v1::Job& job) {
        return job.epoch() == 2 && job.progress().resumed_from_step() > 0 &&
               job.state() == v1::Job::STATE_RUNNING;
      },
      kOther);
  EXPECT_GT(again.progress().resumed_from_step(), 0);
  EXPECT_EQ(store_->FindJob(kOther)->infra_failures, 0);
}

// The other one has the higher priority, so that nobody has to leave.
TEST_F(DisplacementsTest, WhoIsLastInLineStaysSlowAndSaysWhy) {
  RunAloneThenBeside(kSlowAtTimes, kSteady, /*priority=*/1);
  BeSlow(true);
  const v1::Job slow = Await([](const v1::Job& job) {
    return absl::StrContains(job.reason(), "is training in 5 times its fair share");
  });
  EXPECT_EQ(slow.reason(),
            "is training in 5 times its fair share of time (max_slowdown is 1.5): its neighbours "
            "are ahead of it in line, or end soon");
  EXPECT_DOUBLE_EQ(slow.step_time().slowdown(), 5.0);
  Steps(2 * kTellingSteps);
  for (const char* id : {kJob, kOther}) {
    EXPECT_EQ(Now(id).epoch(), 1) << id;
    EXPECT_EQ(Now(id).displacement().count(), 0) << id;
  }
}

// A CPU's predictions tell nothing of a job that never was alone there.
TEST_F(DisplacementsTest, WhoNeverWasAloneIsNotJudged) {
  RunAloneThenBeside(kSteady, kSlow, /*priority=*/1);
  const v1::Job other = Steps(2 * kTellingSteps, kOther);
  EXPECT_EQ(other.step_time().slowdown(), 0.0);
  EXPECT_EQ(other.reason(), "is training");
  EXPECT_EQ(Now(kJob).displacement().count(), 0);
}

TEST_F(DisplacementsTest, WhoEndsSoonDoesNotLeave) {
  RunAloneThenBeside(kSlowAtTimes, kEndsSoon);
  Steps(3, kOther);  // How long it takes is known.
  BeSlow(true);
  const v1::Job slow =
      Await([](const v1::Job& job) { return absl::StrContains(job.reason(), "or end soon"); });
  EXPECT_THAT(slow.reason(), HasSubstr("or end soon"));
  EXPECT_EQ(Now(kOther).displacement().count(), 0);
}

// The first one still runs: what slowed it may have passed.
TEST_F(DisplacementsTest, WhoHasLeftComesBackAfterAWhile) {
  keep_off_ = absl::Seconds(2);
  RunAloneThenBeside(kSlowAtTimes, kSteady);
  BeSlow(true);
  Await(HasLeft, kOther);
  BeSlow(false);
  const auto is_back = [](const v1::Job& job) {
    return job.epoch() == 2 && job.state() == v1::Job::STATE_RUNNING;
  };
  EXPECT_EQ(Await(is_back, kOther).epoch(), 2);
  EXPECT_EQ(Now(kJob).epoch(), 1);
}

// It is on its way off when its user asks for what it has.
TEST_F(DisplacementsTest, WhoLeavesIsKeptAllTheSame) {
  RunAloneThenBeside(kSlowAtTimes, kSteady);
  const pid_t worker = Now(kOther).worker_pid();
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGSTOP), 0);
  BeSlow(true);
  Await([](const v1::Job& job) { return job.displacement().pending(); }, kOther);
  BeSlow(false);
  Cancel(kOther, /*keep=*/true);
  EXPECT_TRUE(Await([](const v1::Job& job) { return job.keep(); }, kOther).keep());
  EXPECT_EQ(kill(worker, SIGCONT), 0);
  const v1::Job kept = Cancelled(kOther);
  EXPECT_EQ(kept.state(), v1::Job::STATE_CANCELLED);
  EXPECT_EQ(kept.reason(), "cancelled; what there was is its output");
  EXPECT_EQ(kept.epoch(), 2);
}

TEST_F(DisplacementsTest, WhoIsAsSlowAloneIsNotSlowed) {
  RunAloneThenBeside(kSlow, kSteady);
  const v1::Job job = Steps(3 * kTellingSteps);
  EXPECT_NEAR(job.step_time().slowdown(), 0.5, 1e-9);  // Ten times in ten, of a half.
  EXPECT_EQ(job.reason(), "is training");
  EXPECT_EQ(Now(kOther).epoch(), 1);
  EXPECT_EQ(Now(kOther).displacement().count(), 0);
}

// Something else slows it: whoever has left comes back, and stays.
TEST_F(DisplacementsTest, WhoseDepartureDoesNotHelpComesBack) {
  RunAloneThenBeside(kSlowAtTimes, kSteady);
  BeSlow(true);
  const auto is_back = [](const v1::Job& job) {
    return job.epoch() == 2 && job.state() == v1::Job::STATE_RUNNING;
  };
  EXPECT_EQ(Await(is_back, kOther).displacement().count(), 1);
  const v1::Job slow = Await([](const v1::Job& job) {
    return absl::StrContains(job.reason(), "a job has left the device of late, which did not help");
  });
  EXPECT_THAT(slow.reason(), HasSubstr("is training in 5 times its fair share"));
  Steps(2 * kTellingSteps);
  EXPECT_EQ(Now(kOther).epoch(), 2);
  EXPECT_EQ(Now(kOther).displacement().count(), 1);
}

// Its worker hears it when the daemon is gone.
TEST_F(DisplacementsTest, ADepartureOutlivesTheDaemon) {
  RunAloneThenBeside(kSlowAtTimes, kSteady);
  const pid_t worker = Now(kOther).worker_pid();
  ASSERT_GT(worker, 0);
  ASSERT_EQ(kill(worker, SIGSTOP), 0);
  BeSlow(true);
  const v1::Job leaves =
      Await([](const v1::Job& job) { return job.displacement().pending(); }, kOther);
  BeSlow(false);
  EXPECT_TRUE(leaves.displacement().pending());
  EXPECT_THAT(leaves.reason(), HasSubstr("saves a checkpoint and leaves its device: slows job-1"));
  scheduler_.reset();
  store_.reset();
  EXPECT_EQ(kill(worker, SIGCONT), 0);
  StartSoon();
  const v1::Job again =
      Await([](const v1::Job& job) { return job.epoch() == 2 && HasLeft(job); }, kOther);
  EXPECT_EQ(again.epoch(), 2);
  EXPECT_EQ(again.displacement().count(), 1);
  EXPECT_EQ(store_->FindJob(kOther)->infra_failures, 0);
  // What is usual for the first one was kept.
  EXPECT_NEAR(AloneRatioOf(Now(kJob)), 1.0, 1e-9);
}

}  // namespace
}  // namespace snug::server

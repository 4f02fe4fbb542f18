// What comes of a gradient that is far from the exact one: by rows, and of a job that runs.
#include "server/scheduler/drift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {
namespace {

using testing::HasSubstr;

v1::WorkerEvent::Step Measured(const std::string& kind, double error, int64_t step) {
  v1::WorkerEvent::Step report;
  v1::Drift& drift = (*report.mutable_drift())[kind];
  drift.set_cosine(0.9);
  drift.set_relative_error(error);
  drift.set_global_step(step);
  return report;
}

v1::Job Bounded(double bound) {
  v1::Job job;
  job.mutable_spec()->mutable_memory()->set_drift_bound(bound);
  return job;
}

// The same measurement comes with every report: it is judged once.
TEST(DriftTest, ANewMeasurementBeyondTheBoundIsToldOnce) {
  v1::Job job = Bounded(0.1);
  EXPECT_EQ(NoteDrift(Measured("int8", 0.1, 2), job), "");
  EXPECT_EQ(NoteDrift(Measured("int8", 0.25, 202), job),
            "the gradient under int8 had a relative error of 0.25 in step 202; memory.drift_bound "
            "is 0.1");
  EXPECT_EQ(NoteDrift(Measured("int8", 0.25, 202), job), "");
  EXPECT_EQ(job.drift().at("int8").global_step(), 202);
  EXPECT_EQ(job.drift().at("int8").relative_error(), 0.25);
  EXPECT_NE(NoteDrift(Measured("int8", 0.25, 402), job), "");
}

// A report without one leaves what there is: a new attempt has measured nothing yet.
TEST(DriftTest, OfEachKindTheNewestStays) {
  v1::Job job = Bounded(0.0);
  EXPECT_EQ(NoteDrift(Measured("int8", 9.0, 2), job), "");
  v1::WorkerEvent::Step report = Measured("int4", 9.0, 202);
  report.set_drift_not_measured("because");
  EXPECT_EQ(NoteDrift(report, job), "");
  EXPECT_EQ(job.drift_not_measured(), "because");
  EXPECT_EQ(NoteDrift(v1::WorkerEvent::Step(), job), "");
  EXPECT_EQ(job.drift_size(), 2);
  EXPECT_EQ(job.drift_not_measured(), "");
}

TEST(DriftTest, TheNoiseOfAnUnbiasedKindHasNoBound) {
  v1::Job job = Bounded(0.1);
  EXPECT_EQ(NoteDrift(Measured("sampled", 1.5, 2), job), "");
  EXPECT_NE(NoteDrift(Measured("two_bit", 1.5, 2), job), "");
}

class DriftedJobTest : public SchedulerTest {
 protected:
  ~DriftedJobTest() override {  // Workers outlive a scheduler.
    Cancel(kJob);
    Cancelled();
  }

  void StoreBounded(double bound, const std::string& script) {
    JobRecord record;
    record.order = 1;
    record.job.set_id(kJob);
    record.job.set_state(v1::Job::STATE_PREPARING);
    *record.job.mutable_spec() = SpecOf({.script = script});
    v1::MemorySpec& memory = *record.job.mutable_spec()->mutable_memory();
    memory.set_fidelity(v1::FIDELITY_APPROXIMATE);
    memory.set_drift_bound(bound);
    auto store = JobStore::Open({.state_dir = dir_ + "/state"}).value();
    ASSERT_TRUE(store->Commit({.job = &record}).ok());
  }
  v1::Job Steps(int64_t until) {
    return Await([&](const v1::Job& job) {
      return job.progress().global_step() >= until && job.state() == v1::Job::STATE_RUNNING;
    });
  }
};

// Its worker saves what there is. Who resumes it has seen why, and it goes on from there.
TEST_F(DriftedJobTest, AJobWhoseGradientIsBeyondItsBoundIsPaused) {
  StoreBounded(0.1, "steps=100000 step_ms=20 drift_at=3 drift_permille=250 only_epoch=1");
  Start({});
  const v1::Job paused =
      Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_PAUSED; });
  EXPECT_THAT(paused.reason(),
              HasSubstr("paused: the gradient under int8 had a relative error of 0.25 in step 3; "
                        "memory.drift_bound is 0.1; goes on from its checkpoint of step "));
  EXPECT_EQ(paused.drift().at("int8").relative_error(), 0.25);
  const int64_t step = paused.progress().global_step();
  scheduler_->Resume(kJob, [](const auto&) {});
  const v1::Job resumed = Steps(step + 3);
  EXPECT_EQ(resumed.epoch(), 2);
  EXPECT_GT(resumed.progress().resumed_from_step(), 0);
  EXPECT_EQ(resumed.pause_cause(), "");
  EXPECT_EQ(resumed.drift().at("int8").global_step(), 3);
}

TEST_F(DriftedJobTest, AJobWithinItsBoundTrainsOn) {
  StoreBounded(0.25, "steps=100000 step_ms=20 drift_at=3 drift_permille=250");
  Start({});
  const v1::Job job = Steps(10);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(job.state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(job.drift().at("int8").relative_error(), 0.25);
}

}  // namespace
}  // namespace snug::server

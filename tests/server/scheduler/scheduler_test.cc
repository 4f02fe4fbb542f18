// The scheduler over a real store, shim and link, with the worker that trains nothing and with
// limits short enough to sit through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "server/node/attempt_files.h"
#include "server/scheduler/lend.h"
#include "server/scheduler/removal.h"
#include "tests/server/scheduler/scheduler_fixture.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

// The disk has no room for the ballast (a folder in its place stands for that), so the store
// refuses to admit. Then it has room again, and nothing else happens: the job runs all the same.
TEST_F(SchedulerTest, AJobThatCouldNotBeStoredAsAdmittedIsPlacedLater) {
  StoreJob("steps=2");
  const std::string ballast = dir_ + "/state/ballast";
  fs::remove(ballast);
  fs::create_directories(ballast);
  Start({.maintain_store = absl::Milliseconds(100), .schedule_again = absl::Milliseconds(200)});
  const v1::Job refused =
      Await([](const v1::Job& job) { return job.reason().find("is full") != std::string::npos; });
  EXPECT_EQ(refused.state(), v1::Job::STATE_QUEUED);
  EXPECT_THAT(refused.reason(), HasSubstr("the disk with the state directory is full"));
  fs::remove(ballast);
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.epoch(), 1);
}

// The model loads for longer than a worker may take to say Hello: it has said it before.
TEST_F(SchedulerTest, AWorkerThatLoadsForLongIsLeftAlone) {
  StoreJob("steps=2 load_ms=3000");
  Start({.hello_timeout = absl::Seconds(1)});
  const v1::Job loading = Await([](const v1::Job& job) { return job.worker_pid() != 0; });
  EXPECT_EQ(loading.state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(loading.reason(), "its worker is loading the model");
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.epoch(), 1);
}

// The worker has read it; what becomes of the folder then is the user's business.
TEST_F(SchedulerTest, TheAdapterThatAJobStartedFromMayBeGoneWhenItEnds) {
  WriteAdapter(dir_ + "/adapter");
  StoreJob("steps=10 load_ms=500", dir_ + "/adapter");
  Start({});
  EXPECT_EQ(Await([](const v1::Job& job) { return job.worker_pid() != 0; }).state(),
            v1::Job::STATE_RUNNING);
  fs::remove_all(dir_ + "/adapter");
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
}

// It waits, says for what, and says it to the daemon's next life too.
TEST_F(SchedulerTest, AJobWhoseWorkerFoundTheDiskFullWaitsForRoom) {
  StoreJob("steps=3 full_at=2");
  Start({});
  const auto waits = [](const v1::Job& job) {
    return job.reason().find("tries again in") != std::string::npos;
  };
  EXPECT_THAT(Await(waits).reason(),
              MatchesRegex("no space left on device at step 2; waits for room on the disk; "
                           "tries again in [4-7][0-9][0-9] s"));
  scheduler_.reset();
  store_.reset();
  Start({});
  const v1::Job job = Await(waits);
  EXPECT_EQ(job.state(), v1::Job::STATE_QUEUED);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_THAT(job.reason(), HasSubstr("disk; tries again in"));
}

// F-33: its heartbeats go on; its training does not. Ten steps of 20 ms are its pace, so the
// shortest limit counts.
TEST_F(SchedulerTest, AWorkerWhoseTrainingHangsIsEndedHeartbeatsNotwithstanding) {
  StoreJob("steps=40 hang_at=10 only_epoch=1");
  Start({.stuck_after = absl::Seconds(4), .kill_grace = absl::Milliseconds(500)});
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.epoch(), 2);
  EXPECT_THAT(metrics_.Text(), HasSubstr("snug_workers_ended_total{reason=\"hung\"} 1"));
}

// F-33: the shim is stopped and its worker as well: nobody is left who would end by itself.
TEST_F(SchedulerTest, AStoppedShimIsEndedWithItsWorker) {
  StoreJob("steps=40 step_ms=50 deaf=1");
  Start({.stuck_after = absl::Seconds(1),
         .kill_grace = absl::Milliseconds(200),
         .shim_grace = absl::Milliseconds(200)});
  const v1::Job running = Await([](const v1::Job& job) { return job.worker_pid() != 0; });
  const pid_t shim = ShimPid(AttemptDir(dir_ + "/state", kJob, 1));
  // It is woken when its worker is ended: stopped again and again it stays stopped.
  std::atomic<bool> over = false;
  std::thread stopper([&] {
    while (!over && kill(shim, SIGSTOP) == 0) absl::SleepFor(absl::Milliseconds(1));
  });
  kill(running.worker_pid(), SIGSTOP);
  const v1::Job again = Await([](const v1::Job& job) { return job.epoch() >= 2; });
  over = true;
  stopper.join();
  EXPECT_GE(again.epoch(), 2);
}

// The daemon was stopped, or the machine slept: it is its own silence that it hears.
TEST_F(SchedulerTest, AWorkerIsNotBlamedForADaemonThatWasAway) {
  StoreJob("steps=300 step_ms=20");
  Start({.asleep = absl::Seconds(2), .stuck_after = absl::Seconds(4)});
  Await([](const v1::Job& job) { return job.progress().global_step() >= 5; });
  // Answers come on the scheduler's thread: this one keeps it from its work.
  scheduler_->Cancel({}, [](const auto&) { absl::SleepFor(absl::Seconds(6)); });
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.epoch(), 1);
}

// Such a step would stay in the job for ever, and in the metrics.
TEST_F(SchedulerTest, AnAbsurdStepIsNotBelieved) {
  StoreJob("steps=10 absurd_at=5");
  Start({});
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.progress().global_step(), 10);
  EXPECT_EQ(ended.epoch(), 1);
  EXPECT_THAT(metrics_.Text(), testing::Not(HasSubstr("snug_link_errors_total 0")));
}

// A thousand of them with every step: the worker is slowed down, and what it does is shown.
TEST_F(SchedulerTest, AFloodOfHeartbeatsHoldsNobodyUp) {
  StoreJob("steps=6 beats=1000");
  Start({});
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  EXPECT_EQ(ended.epoch(), 1);
}

// The folder with the model is away when the daemon starts, and is back later.
TEST_F(SchedulerTest, AJobWhoseFilesAreAwayIsHeldAndGoesOn) {
  StoreJob("steps=2");
  fs::rename(dir_ + "/model", dir_ + "/away");
  Start({});
  const v1::Job held = Await([](const v1::Job& job) { return job.reason().find("is held") == 0; });
  EXPECT_EQ(held.state(), v1::Job::STATE_PREPARING);
  EXPECT_THAT(held.reason(), HasSubstr("No such file or directory; tries again in 5 s"));
  fs::rename(dir_ + "/away", dir_ + "/model");
  EXPECT_EQ(Ended().state(), v1::Job::STATE_SUCCEEDED);
}

// For so long only: a model that was removed does not come back.
TEST_F(SchedulerTest, AJobWhoseFilesStayAwayFails) {
  StoreJob("steps=2");
  fs::remove_all(dir_ + "/model");
  Start({.files_away = absl::ZeroDuration()});
  const v1::Job ended = Ended();
  EXPECT_EQ(ended.state(), v1::Job::STATE_FAILED);
  EXPECT_EQ(ended.error().reason(), "BAD_MODEL");
}

// What the file of jobs in hand holds after so many ends of the daemon.
std::string InHandAfter(int ends) {
  std::string line = std::to_string(ends) + " working job-1";
  line.resize(95, ' ');
  return line + "\n";
}

TEST_F(SchedulerTest, AJobInHandAtTwoEndsOfTheDaemonIsHeld) {
  StoreJob("steps=2");
  WriteText(dir_ + "/state/in-hand", InHandAfter(1));
  Start({});
  const v1::Job held =
      Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_PAUSED; });
  EXPECT_EQ(held.state(), v1::Job::STATE_PAUSED);
  EXPECT_THAT(held.reason(),
              HasSubstr("the daemon ended 2 times while it was at work on this job"));
  EXPECT_THAT(ReadText(dir_ + "/state/in-hand"), Not(HasSubstr(kJob)));
  scheduler_.reset();
  store_.reset();
  Start({});
  EXPECT_EQ((*index_.Find(kJob))->state(), v1::Job::STATE_PAUSED);
}

TEST_F(SchedulerTest, AJobInHandAtOneEndOfTheDaemonGoesOn) {
  StoreJob("steps=2");
  WriteText(dir_ + "/state/in-hand", InHandAfter(0));
  Start({});
  EXPECT_EQ(Ended().state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_THAT(ReadText(dir_ + "/state/in-hand"), Not(HasSubstr(kJob)));
}

// Whoever did not hear that his last job was made asks again, and is told of it.
TEST_F(SchedulerTest, ARepeatedRequestIsAnsweredWhereNoMoreJobsMayBe) {
  Start({.max_live_jobs = 1});
  const auto created = [&](const std::string& request) {
    absl::StatusOr<v1::Job> made;
    absl::Notification told;
    scheduler_->Create({.spec = SpecOf({.script = "steps=1000 step_ms=20"}),
                        .owner = "uid:0",
                        .request_id = request,
                        .body_sha256 = "hash"},
                       [&](const absl::StatusOr<v1::Job>& job) {
                         made = job;
                         told.Notify();
                       });
    told.WaitForNotification();
    return made;
  };
  const std::string id = created("first").value().id();
  EXPECT_EQ(created("first").value().id(), id);
  EXPECT_EQ(ReasonOf(created("second").status()), "QUEUE_FULL");
  EXPECT_EQ(ReasonOf(created("second").status()), "QUEUE_FULL");
  Cancel(id);
  Cancelled(id);
}

TEST_F(SchedulerTest, WhatANewJobNamesIsNotDeletedUnderIt) {
  StoreJob("steps=1");
  Start({});
  ASSERT_EQ(Ended().state(), v1::Job::STATE_SUCCEEDED);
  absl::Notification go_on, answered;
  absl::Status deleted;
  scheduler_->core().Post([&] { go_on.WaitForNotification(); });
  v1::JobSpec spec = SpecOf({.script = "steps=1"});
  spec.mutable_lora()->set_init_adapter(kJob);
  scheduler_->Create({.spec = spec, .owner = "uid:0"}, [](const auto&) {});
  scheduler_->Delete(kJob, [&](const auto& job) {
    deleted = job.status();
    answered.Notify();
  });
  go_on.Notify();  // The new job is on its way into the store when the other is to be deleted.
  answered.WaitForNotification();
  EXPECT_THAT(deleted.message(), HasSubstr("a new job that names it is on its way"));
  EXPECT_TRUE(index_.Find(kJob).ok());
}

// Retention has looked at one page of jobs when a job of the next page is begun with, by one that
// has ended by the time that it comes to that page.
TEST_F(SchedulerTest, WhatAnEndedJobBeganWithIsNotTakenAway) {
  {
    auto store = JobStore::Open({.state_dir = dir_ + "/state"}).value();
    for (const char* id : {"base", "adapter"}) {
      JobRecord record;
      record.order = id == std::string("base") ? 1 : 2;
      record.job.set_id(id);
      record.job.set_state(v1::Job::STATE_SUCCEEDED);
      *record.job.mutable_spec() = SpecOf({});
      if (record.order == 2) record.job.mutable_spec()->set_model("base");
      ASSERT_TRUE(store->Commit({.job = &record}).ok());
      fs::create_directories(CheckpointsDir(dir_ + "/state", id));
    }
  }
  Start({});
  const Removal removal(scheduler_->core());
  for (const Leaving what : {Leaving::kJob, Leaving::kCheckpoints})
    EXPECT_THAT(std::string(removal.TakeAway("base", what).status().message()),
                testing::HasSubstr("what job \"adapter\" began with"));
  EXPECT_TRUE(removal.TakeAway("base", Leaving::kLogs).ok());
  EXPECT_TRUE(removal.TakeAway("adapter", Leaving::kJob).ok());
  EXPECT_TRUE(removal.TakeAway("base", Leaving::kJob).ok());
}

// A worker's output could end the daemon at each of its starts.
TEST_F(SchedulerTest, WhatAnAttemptLeftIsNotReadAgainAfterTwoEndsOfTheDaemon) {
  StoreJob("steps=10 step_ms=50");
  Start({});
  Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_RUNNING; });
  scheduler_.reset();
  store_.reset();
  WriteText(dir_ + "/state/in-hand", InHandAfter(1));
  Start({});
  const v1::Job parked =
      Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_PAUSED; });
  EXPECT_THAT(parked.reason(),
              HasSubstr("the daemon ended 2 times while it read what attempt 1 left"));
  scheduler_->Resume(kJob, [](const auto&) {});
  EXPECT_EQ(Ended().state(), v1::Job::STATE_SUCCEEDED);
}

// A cancelled worker is killed within the limits of this test; one that exports is waited for.
TEST_F(SchedulerTest, AKeptJobHasTheTimeThatItsExportTakes) {
  StoreJob("steps=100000 export_ms=1500");
  Start({.cancel_term = absl::Milliseconds(100), .cancel_kill = absl::Milliseconds(200)});
  Await([](const v1::Job& job) { return job.progress().global_step() >= 3; });
  Cancel(kJob, /*keep=*/true);
  const v1::Job job = Cancelled();
  EXPECT_EQ(job.reason(), "cancelled; what there was is its output");
  EXPECT_GE(job.progress().global_step(), 3);
  EXPECT_TRUE(fs::exists(index_.OutputOf(kJob).value() + "/adapter_model.safetensors"));
}

TEST_F(SchedulerTest, AnExportIsNotWaitedForWhenItsJobIsCancelledOnceMore) {
  StoreJob("steps=100000 export_ms=100000");
  Start({.cancel_term = absl::Milliseconds(100), .cancel_kill = absl::Milliseconds(200)});
  Await([](const v1::Job& job) { return job.progress().global_step() >= 3; });
  Cancel(kJob, /*keep=*/true);
  const v1::Job kept =
      Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_CANCELLING; });
  EXPECT_EQ(kept.reason(), "its worker exports what there is");
  Cancel(kJob);
  EXPECT_EQ(Cancelled().reason(), "cancelled");
  EXPECT_FALSE(index_.OutputOf(kJob).ok());
}

DevicePlans OnePlan(int64_t bytes) {
  v1::Plan plan;
  plan.set_peak_bytes(bytes);
  plan.set_threads(1);
  return {{"cpu:0", {plan}}};
}

absl::Status CreateNow(Scheduler& scheduler, CreateOrder order) {
  std::promise<absl::Status> created;
  scheduler.Create(std::move(order), [&](const auto& job) { created.set_value(job.status()); });
  return created.get_future().get();
}

absl::StatusOr<Lent> LendNow(Scheduler& scheduler, const std::string& id, int64_t bytes) {
  auto lent = std::make_shared<std::promise<absl::StatusOr<Lent>>>();
  Lender(scheduler.core()).Lend(id, OnePlan(bytes), [lent](absl::StatusOr<Lent> reply) {
    lent->set_value(std::move(reply));
  });
  return lent->get_future().get();
}

// Those for which there is no room ask again. (No two are alike.)
TEST_F(SchedulerTest, MoreJobsThanMayWaitToBePreparedAreAllPrepared) {
  constexpr int kJobs = 6;
  for (int i = 0; i < kJobs; ++i)
    StoreJob({.id = absl::StrCat("job-", i), .order = i + 1, .steps = i + 1, .script = "steps=1"});
  Start({.tick = absl::Milliseconds(50), .waiting_of_a_user = 1});
  for (int i = 0; i < kJobs; ++i) {
    const v1::Job ended =
        Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_SUCCEEDED; },
              absl::StrCat("job-", i));
    EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  }
}

// The files are read once for all that wait: no fourth read is let through before all are ready.
// Whoever is cancelled while they are read in its name takes none of the others with it, and each
// job keeps its own name (here: what its worker does).
TEST_F(SchedulerTest, JobsThatAreAlikeAreMadeReadyTogether) {
  const std::string reads = dir_ + "/reads", reader = dir_ + "/reader";
  WriteText(reader, absl::StrCat("#!/bin/sh\necho >> ", reads, "\nn=$(wc -l < ", reads,
                                 ")\nwhile [ -e ", dir_, "/gate-$n ]; do sleep 0.02; done\nexec ",
                                 std::getenv("SNUG_BIN_DIR"), "/snug-inspect\n"));
  fs::permissions(reader, fs::perms::owner_all);
  for (const char* gate : {"/gate-1", "/gate-2", "/gate-4"}) WriteText(dir_ + gate, "");
  StoreJob({.id = "another", .order = 1, .steps = 100000, .script = "steps=100000"});
  reader_ = std::make_unique<Inspector>(InspectSettings{.program = reader});
  const auto is_read = [](const v1::Job& job) {
    return job.reason() == "its files are being checked";
  };
  Start({});
  Await(is_read, "another");
  for (int i = 1; i <= 3; ++i) {
    const std::string script = absl::StrCat("steps=", i + 3);
    const std::string id = absl::StrCat("job-", i);
    ASSERT_TRUE(CreateNow(*scheduler_, {.spec = SpecOf({.script = script}), .job_id = id}).ok());
  }
  fs::remove(dir_ + "/gate-1");
  Await(is_read, "job-1");
  Cancel("job-1");
  EXPECT_EQ(Cancelled("job-1").state(), v1::Job::STATE_CANCELLED);
  const auto is_ready = [](const v1::Job& job) { return job.state() != v1::Job::STATE_PREPARING; };
  for (const char* id : {"job-2", "job-3"})
    EXPECT_NE(Await(is_ready, id).state(), v1::Job::STATE_PREPARING) << id;
  fs::remove(dir_ + "/gate-4");
  for (int i = 2; i <= 3; ++i) {
    const v1::Job ended =
        Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_SUCCEEDED; },
              absl::StrCat("job-", i));
    EXPECT_EQ(ended.progress().global_step(), i + 3) << ended.ShortDebugString();
    EXPECT_EQ(ended.spec().display_name(), absl::StrCat("steps=", i + 3));
  }
  Cancel("another");
  EXPECT_EQ(Cancelled("another").state(), v1::Job::STATE_CANCELLED);
}

// Those that come after others have begun to be made ready begin together, when their time comes.
TEST_F(SchedulerTest, WhoComesAfterABeginningWaitsForTheNext) {
  constexpr absl::Duration kBetweenBeginnings = absl::Seconds(4);
  StoreJob({.id = "first", .order = 1, .steps = 3, .script = "steps=3"});
  const absl::Time begin = absl::Now();
  Start({.between_beginnings = kBetweenBeginnings});
  const auto is_ready = [](const v1::Job& job) { return job.state() != v1::Job::STATE_PREPARING; };
  Await(is_ready, "first");
  const v1::JobSpec spec = SpecOf({.script = "steps=3"});
  for (const char* id : {"second", "third"})
    ASSERT_TRUE(CreateNow(*scheduler_, {.spec = spec, .job_id = id}).ok());
  for (const char* id : {"second", "third"}) Await(is_ready, id);
  EXPECT_GE(absl::Now() - begin, kBetweenBeginnings);
}

// That the job is ready is on its way to the disk when it is cancelled: the one comes before the
// other, in the store as in what is shown.
TEST_F(SchedulerTest, WhatIsOnItsWayIntoTheStoreComesFirst) {
  StoreJob("steps=2");
  Start({});
  absl::Notification go_on;  // While its dataset is prepared, the disk becomes slow.
  std::thread slow_disk([&] {
    const absl::Status read = store_->Read([&](Database&) {
      go_on.WaitForNotification();
      return absl::OkStatus();
    });
    EXPECT_TRUE(read.ok());
  });
  const auto is_storing = [this] {
    std::promise<bool> answer;
    SchedulerCore& core = scheduler_->core();
    core.Post([&] { answer.set_value(core.readying.HasToStore()); });
    return answer.get_future().get();
  };
  const absl::Time end = absl::Now() + absl::Seconds(60);
  while (!is_storing() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  std::promise<absl::StatusOr<v1::Job>> reply;
  std::future<absl::StatusOr<v1::Job>> replied = reply.get_future();
  v1::CancelJobRequest request;
  request.set_id(kJob);
  scheduler_->Cancel(request, [&](auto job) { reply.set_value(std::move(job)); });
  EXPECT_EQ(replied.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  go_on.Notify();
  slow_disk.join();
  const absl::StatusOr<v1::Job> cancelled = replied.get();
  ASSERT_TRUE(cancelled.ok()) << cancelled.status();
  EXPECT_EQ(cancelled->state(), v1::Job::STATE_CANCELLED);
  const absl::StatusOr<JobRecord> stored = store_->FindJob(kJob);
  ASSERT_TRUE(stored.ok()) << stored.status();
  EXPECT_EQ(stored->state(), v1::Job::STATE_CANCELLED);
  EXPECT_THAT(stored->train_data, Not(IsEmpty()));
}

// Bytes are lent beside a job's, as many as are free and no more; nothing is taken from the job,
// and what is given back can be lent again.
TEST_F(SchedulerTest, WhatIsFreeBesideJobsIsLent) {
  StoreJob("steps=100000");
  Start({});
  Await([](const v1::Job& job) { return job.progress().global_step() >= 1; });
  const auto reserved = [this] { return index_.devices().front().reserved_bytes(); };
  const int64_t whole = device_.capacity_bytes, used = reserved();
  ASSERT_GT(used, 0);
  const auto too_much = LendNow(*scheduler_, "a", whole - used + 1);
  EXPECT_EQ(too_much.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(too_much.status().message()),
              AllOf(HasSubstr(absl::StrCat("(", whole - used + 1, " bytes) are needed on cpu:0")),
                    HasSubstr(absl::StrCat("(", whole - used, " bytes) are free"))));
  const auto lent = LendNow(*scheduler_, "a", whole - used);
  ASSERT_TRUE(lent.ok()) << lent.status();
  EXPECT_EQ(lent->device.name, "cpu:0");
  EXPECT_EQ(reserved(), whole);
  EXPECT_FALSE(LendNow(*scheduler_, "b", 1).ok());
  Lender(scheduler_->core()).GiveBack("a");
  EXPECT_TRUE(LendNow(*scheduler_, "b", whole - used).ok());
  Lender(scheduler_->core()).GiveBack("b");
  EXPECT_FALSE(LendNow(*scheduler_, "c", whole).ok());  // Asked behind what was given back.
  EXPECT_EQ(reserved(), used);
  Cancel(kJob);
  EXPECT_EQ(Cancelled().reason(), "cancelled");
}

// One that never says it is ended, and the next one too, until no retries are left.
TEST_F(SchedulerTest, AWorkerThatNeverSaysHelloIsEnded) {
  StoreJob("steps=1000 silent=1");
  Start({.hello_timeout = absl::Milliseconds(300), .kill_grace = absl::Milliseconds(200)});
  const v1::Job again = Await([](const v1::Job& job) { return job.epoch() == 2; });
  EXPECT_EQ(again.epoch(), 2);
  EXPECT_THAT(metrics_.Text(), testing::Not(HasSubstr("{reason=\"no_hello\"} 0")));
}

}  // namespace
}  // namespace snug::server

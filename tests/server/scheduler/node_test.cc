// The scheduler over a node that does as it is told: nothing runs there.
#include "server/node/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr absl::Duration kAFewTicks = absl::Milliseconds(500);

// What the node says, and what has been asked of it.
struct Script {
  absl::Status start;
  Liveness liveness = Liveness::kLives;
  absl::Status collect;
  int starts = 0, adoptions = 0, collections = 0;
  std::vector<int> to_worker;  // Signals.
};

class FakeNode : public Node {
 public:
  FakeNode(Script& script, absl::Mutex& mutex) : script_(script), mutex_(mutex) {}

  std::string BootId() const override { return "boot"; }
  std::unique_ptr<AttemptProcesses> Expect(const std::string&, int) override {
    return std::make_unique<Processes>(*this);
  }
  std::unique_ptr<AttemptProcesses> Adopt(const std::string&, int, int64_t) override {
    absl::MutexLock lock(&mutex_);
    ++script_.adoptions;
    return std::make_unique<Processes>(*this);
  }
  absl::StatusOr<AttemptRemains> Collect(const EndedAttempt&) override {
    absl::MutexLock lock(&mutex_);
    ++script_.collections;
    if (!script_.collect.ok()) return script_.collect;
    return AttemptRemains{.exit = std::nullopt, .result = std::nullopt};
  }
  absl::StatusOr<std::unique_ptr<WorkerLink>> Listen(WorkerLink::Handlers) override {
    return std::make_unique<SilentLink>();
  }
  bool WatchesGpus() const override { return false; }
  GpuUses LookAtGpus(const std::vector<Device>&) override { return {}; }
  void SweepSharedWeights() override {}

 private:
  class SilentLink : public WorkerLink {
   public:
    Events Take(ConnectionId) override { return {}; }
    void Welcome(ConnectionId) override {}
    void Send(ConnectionId, const v1::WorkerCommand&) override {}
    void Close(ConnectionId) override {}
  };
  class Processes : public AttemptProcesses {
   public:
    explicit Processes(FakeNode& node) : node_(node) {}
    absl::StatusOr<int64_t> Start(const Device&, const v1::Assignment&) override {
      absl::MutexLock lock(&node_.mutex_);
      ++node_.script_.starts;
      if (!node_.script_.start.ok()) return node_.script_.start;
      return 7;
    }
    Liveness Look() override {
      absl::MutexLock lock(&node_.mutex_);
      return node_.script_.liveness;
    }
    absl::Status SignalShim(int) override { return absl::OkStatus(); }
    absl::Status SignalWorker(int signal) override {
      absl::MutexLock lock(&node_.mutex_);
      node_.script_.to_worker.push_back(signal);
      return absl::OkStatus();
    }
    int64_t PeakHostBytes(int64_t) override { return 0; }

   private:
    FakeNode& node_;
  };

  Script& script_;
  absl::Mutex& mutex_;
};

class NodeTest : public SchedulerTest {
 protected:
  ~NodeTest() override { scheduler_.reset(); }  // Its node looks into the script until then.

  void Begin(const Script& script, const SchedulerLimits& limits = {}) {
    script_ = script;
    node_ = std::make_unique<FakeNode>(script_, mutex_);
    StoreJob("steps=1");
    Start(limits);
  }
  Script Now() {
    absl::MutexLock lock(&mutex_);
    return script_;
  }
  template <typename So>
  void AwaitScript(const So& so) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (!so(Now()) && absl::Now() < end) absl::SleepFor(absl::Milliseconds(5));
  }
  void AwaitStarted() {
    AwaitScript([](const Script& script) { return script.starts == 1; });
  }
  JobState State() { return (*index_.Find(kJob))->state(); }

  absl::Mutex mutex_;
  Script script_;
};

TEST_F(NodeTest, WhatCannotBeStartedNowWaitsWithTheReason) {
  Begin({.start = absl::ResourceExhaustedError("no memory for a process"),
         .liveness = Liveness::kGone});
  const v1::Job job = Await(
      [](const v1::Job& job) { return job.state() == v1::Job::STATE_QUEUED && job.epoch() > 0; });
  EXPECT_THAT(job.reason(), HasSubstr("its worker was not started: no memory for a process"));
  EXPECT_EQ(Now().starts, 1);
}

// Not even of one that has never said Hello: another attempt beside it would be worse than none.
TEST_F(NodeTest, NothingFollowsWhereNobodyKnows) {
  SchedulerLimits limits;
  limits.hello_timeout = limits.kill_grace = absl::Milliseconds(10);
  Begin({.liveness = Liveness::kUnknown}, limits);
  AwaitStarted();
  absl::SleepFor(kAFewTicks);
  EXPECT_THAT(Now().to_worker, IsEmpty());
  EXPECT_EQ(Now().collections, 0);
  {
    absl::MutexLock lock(&mutex_);
    script_.liveness = Liveness::kLives;
  }
  AwaitScript([](const Script& script) {
    return !script.to_worker.empty() && script.to_worker.back() == SIGKILL;
  });
  EXPECT_EQ(Now().to_worker.front(), SIGTERM);
  EXPECT_THAT(Now().to_worker, Contains(SIGKILL));
  EXPECT_EQ(Now().collections, 0);  // It lives as long as the node says so.
}

// Its processes do not die: its bytes stay promised, and nothing is started in its place.
TEST_F(NodeTest, OneThatCannotBeCollectedIsAskedForAgain) {
  SchedulerLimits limits;
  limits.close_again = absl::Milliseconds(10);
  Begin({.liveness = Liveness::kGone, .collect = absl::UnavailableError("does not die")}, limits);
  AwaitScript([](const Script& script) { return script.collections >= 3; });
  EXPECT_GE(Now().collections, 3);
  EXPECT_EQ(State(), v1::Job::STATE_STARTING);
  EXPECT_GT(index_.devices().front().reserved_bytes(), 0);
  EXPECT_EQ(Now().starts, 1);
  {
    absl::MutexLock lock(&mutex_);
    script_.collect = absl::OkStatus();
  }
  AwaitScript([](const Script& script) { return script.starts > 1; });
  EXPECT_GT(Now().starts, 1);
}

// F-35: of a GPU, which it may hold in its driver, nobody else gets a part meanwhile.
TEST_F(NodeTest, AProcessThatCannotBeEndedKeepsItsBytesAndItsGpu) {
  SchedulerLimits limits;
  limits.close_again = absl::Milliseconds(10);
  device_.name = "gpu:0";
  Begin({.liveness = Liveness::kGone, .collect = absl::DeadlineExceededError("lives")}, limits);
  const v1::Job job =
      Await([](const v1::Job& job) { return absl::StrContains(job.reason(), "does not end"); });
  EXPECT_EQ(job.reason(),
            "a process of attempt 1 does not end, though it was killed: its bytes stay reserved");
  EXPECT_EQ(job.state(), v1::Job::STATE_STARTING);
  const v1::Device held = index_.devices().front();
  EXPECT_GT(held.reserved_bytes(), 0);
  EXPECT_EQ(held.trouble(), "a process on it does not end, though it was killed");
  {
    absl::MutexLock lock(&mutex_);
    script_.collect = absl::OkStatus();
  }
  AwaitScript([](const Script& script) { return script.starts > 1; });
  EXPECT_GT(Now().starts, 1);
  EXPECT_EQ(index_.devices().front().trouble(), "");
}

TEST_F(NodeTest, TheNextLifeAdoptsWhatRuns) {
  Begin({});
  AwaitStarted();
  scheduler_.reset();
  store_.reset();
  node_ = std::make_unique<FakeNode>(script_, mutex_);
  Start({});
  absl::SleepFor(kAFewTicks);
  EXPECT_EQ(Now().adoptions, 1);
  EXPECT_EQ(Now().starts, 1);
  EXPECT_EQ(State(), v1::Job::STATE_STARTING);
}

}  // namespace
}  // namespace snug::server

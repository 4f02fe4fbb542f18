// The scheduler over a node without processes, sockets or a machine: attempts are threads of the
// test, their messages go from hand to hand, and what they leave is brought when it is collected. A
// job goes its whole way on it, through everything that the scheduler asks of a node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/artifact/checkpoints.h"
#include "server/data/sha256.h"
#include "server/node/node.h"
#include "tests/server/scheduler/scheduler_fixture.h"

namespace snug::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr absl::Duration kPause = absl::Milliseconds(2);
constexpr int64_t kWorkerNumber = 4711, kShimNumber = 4712, kPeakBytes = 123 << 20;
constexpr int64_t kCountedBytes = 1 << 30;

// How far attempts get: to this step, and no further until it is more. And what their workers take
// that nobody has counted.
struct Gate {
  int64_t open_to = 0;
  int64_t uncounted_bytes = 0;
};

class MemoryNode : public Node {
 public:
  explicit MemoryNode(Gate gate = {}) : gate_(gate) {}
  ~MemoryNode() override {
    {
      absl::MutexLock lock(&mutex_);
      over_ = true;
    }
    for (auto& [name, run] : runs_)
      if (run->thread.joinable()) run->thread.join();
  }

  absl::StatusOr<std::unique_ptr<WorkerLink>> Listen(WorkerLink::Handlers handlers) override {
    absl::MutexLock lock(&mutex_);
    handlers_ = std::move(handlers);
    return std::make_unique<Link>(*this);
  }
  std::string BootId() const override { return "of no machine"; }
  std::unique_ptr<AttemptProcesses> Expect(const std::string& job, int epoch) override {
    absl::MutexLock lock(&mutex_);
    asked_.push_back("expect");
    std::unique_ptr<Run>& run = runs_[{job, epoch}];
    run = std::make_unique<Run>();
    return std::make_unique<Attempt>(*this, *run);
  }
  std::unique_ptr<AttemptProcesses> Adopt(const std::string& job, int epoch, int64_t) override {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<Run>& run = runs_[{job, epoch}];
    if (run == nullptr) run = std::make_unique<Run>();
    return std::make_unique<Attempt>(*this, *run);
  }
  // Here is where a node of another machine would bring files to the daemon.
  absl::StatusOr<AttemptRemains> Collect(const EndedAttempt& ended) override {
    absl::MutexLock lock(&mutex_);
    asked_.push_back("collect");
    const Run& run = *runs_.at({ended.identity.job, ended.identity.epoch});
    EXPECT_EQ(ended.shim, kShimNumber);
    EXPECT_EQ(ended.identity.nonce, run.assignment.nonce());
    if (run.bring) run.bring(run.assignment);
    return AttemptRemains{.exit = run.exit, .result = run.result};
  }
  bool WatchesGpus() const override { return false; }
  GpuUses LookAtGpus(const std::vector<Device>&) override { return {}; }
  void SweepSharedWeights() override {
    absl::MutexLock lock(&mutex_);
    asked_.push_back("sweep");
  }

  // What was asked of it, and what was said to its workers.
  std::vector<std::string> asked() const {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }
  void OpenGate(int64_t step) {
    absl::MutexLock lock(&mutex_);
    gate_.open_to = step;
  }
  v1::Assignment AssignmentOf(const std::string& job, int epoch) const {
    absl::MutexLock lock(&mutex_);
    return runs_.at({job, epoch})->assignment;
  }

 private:
  // An attempt, and the thread that is its worker.
  struct Run {
    std::thread thread;
    v1::Assignment assignment;
    uint64_t link = 0;
    bool welcome = false, stop = false, killed = false, gone = false;
    bool started = false;
    WorkerLink::Events said;
    std::function<void(const v1::Assignment&)> bring;
    std::optional<ExitRecord> exit;
    std::optional<v1::WorkerResult> result;
  };

  class Attempt : public AttemptProcesses {
   public:
    Attempt(MemoryNode& node, Run& run) : node_(node), run_(run) {}
    absl::StatusOr<int64_t> Start(const Device&, const v1::Assignment& assignment) override {
      absl::MutexLock lock(&node_.mutex_);
      node_.asked_.push_back("start");
      run_.assignment = assignment;
      run_.link = node_.next_link_++;
      run_.started = true;
      run_.thread = std::thread([&node = node_, &run = run_] { node.Work(run); });
      return kShimNumber;
    }
    Liveness Look() override {
      absl::MutexLock lock(&node_.mutex_);
      return run_.started && !run_.gone ? Liveness::kLives : Liveness::kGone;
    }
    absl::Status SignalShim(int) override { return absl::OkStatus(); }
    absl::Status SignalWorker(int signal) override {
      absl::MutexLock lock(&node_.mutex_);
      if (signal == SIGTERM || signal == SIGKILL) run_.killed = true;
      return absl::OkStatus();
    }
    int64_t PeakHostBytes(int64_t worker) override {
      return worker == kWorkerNumber ? kPeakBytes : 0;
    }

   private:
    MemoryNode& node_;
    Run& run_;
  };

  class Link : public WorkerLink {
   public:
    explicit Link(MemoryNode& node) : node_(node) {}
    ~Link() override {
      absl::MutexLock lock(&node_.mutex_);
      node_.handlers_ = {};
    }
    Events Take(ConnectionId id) override {
      absl::MutexLock lock(&node_.mutex_);
      Run* run = node_.Of(id);
      return run == nullptr ? Events() : std::exchange(run->said, {});
    }
    void Welcome(ConnectionId) override {}
    void Send(ConnectionId id, const v1::WorkerCommand& command) override {
      absl::MutexLock lock(&node_.mutex_);
      Run* run = node_.Of(id);
      if (run == nullptr) return;
      if (command.has_welcome()) node_.asked_.push_back("welcome");
      if (command.has_stop()) node_.asked_.push_back("stop");
      run->welcome |= command.has_welcome();
      run->stop |= command.has_stop();
    }
    void Close(ConnectionId) override {}

   private:
    MemoryNode& node_;
  };

  Run* Of(WorkerLink::ConnectionId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (auto& [name, run] : runs_)
      if (run->link == id) return run.get();
    return nullptr;
  }

  void Say(Run& run, const v1::WorkerEvent& event) {
    std::function<void(WorkerLink::ConnectionId)> tell;
    {
      absl::MutexLock lock(&mutex_);
      run.said.push_back(event);
      tell = handlers_.on_events;
    }
    if (tell != nullptr) tell(run.link);
  }

  // Until it is so, or the worker has to end: false.
  bool Await(Run& run, const std::function<bool()>& so) {
    while (true) {
      {
        absl::MutexLock lock(&mutex_);
        if (run.stop || run.killed || over_) return false;
        if (so()) return true;
      }
      absl::SleepFor(kPause);
    }
  }

  void Work(Run& run) {
    v1::Assignment assignment;
    {
      absl::MutexLock lock(&mutex_);
      assignment = run.assignment;
    }
    v1::WorkerEvent event;
    v1::WorkerEvent::Hello& hello = *event.mutable_hello();
    hello.set_job_id(assignment.job_id());
    hello.set_epoch(assignment.epoch());
    hello.set_nonce(assignment.nonce());
    hello.set_pid(static_cast<int32_t>(kWorkerNumber));
    Say(run, event);
    bool goes_on = Await(run, [&] { return run.welcome; });
    const int64_t steps = assignment.spec().training().max_steps();
    int64_t step = 0;
    while (goes_on && step < steps) {
      goes_on = Await(run, [&] { return step < gate_.open_to; });
      if (!goes_on) break;
      ++step;
      event.Clear();
      v1::Progress& progress = *event.mutable_step()->mutable_progress();
      progress.set_global_step(step);
      progress.set_max_steps(steps);
      progress.set_loss(1.0 / static_cast<double>(step));
      LookAtMemory(*event.mutable_step()->add_looks());
      Say(run, event);
    }
    End(run, step, goes_on);
  }

  void LookAtMemory(v1::MemoryLook& look) {
    absl::MutexLock lock(&mutex_);
    look.set_counted_bytes(kCountedBytes);
    look.set_seen_bytes(kCountedBytes + gate_.uncounted_bytes);
  }

  void End(Run& run, int64_t step, bool finished) {
    absl::MutexLock lock(&mutex_);
    v1::WorkerResult result;
    result.set_outcome(finished ? v1::WorkerResult::OUTCOME_SUCCEEDED
                                : v1::WorkerResult::OUTCOME_STOPPED);
    result.mutable_progress()->set_global_step(step);
    result.mutable_progress()->set_max_steps(run.assignment.spec().training().max_steps());
    run.result = result;
    run.exit = ExitRecord{.pid = kWorkerNumber, .exit_code = finished ? 0 : 3, .text = "{}"};
    if (run.killed) run.exit = ExitRecord{.exit_code = -1, .signal = SIGKILL, .text = "{}"};
    if (finished) run.bring = BringOutput;
    if (!finished && !run.killed && step > 0)
      run.bring = [step](const v1::Assignment& assignment) { BringCheckpoint(assignment, step); };
    run.gone = true;
  }

  static void BringOutput(const v1::Assignment& assignment) {
    const std::string dir = assignment.attempt_dir() + "/output";
    fs::create_directories(dir);
    const auto config = program::ReadModelConfig(assignment.spec().model()).value();
    WriteText(dir + "/adapter_config.json", "{}");
    WriteText(dir + "/metrics.jsonl", "{\"global_step\":1}\n");
    WriteParameters(dir + "/adapter_model.safetensors",
                    program::BuildProgram(config, ModeOf(assignment.spec())).value(),
                    Holds::kAdapter);
  }

  static void BringCheckpoint(const v1::Assignment& assignment, int64_t step) {
    const std::string dir =
        absl::StrCat(assignment.checkpoints_dir(), "/step-", step, ".e", assignment.epoch());
    fs::create_directories(dir);
    WriteText(dir + "/weights", "w");
    const nlohmann::json manifest = {
        {"step", step},
        {"epoch", assignment.epoch()},
        {"files", {{"weights", {{"bytes", 1}, {"sha256", Sha256Hex("w")}}}}}};
    WriteText(dir + "/MANIFEST.json", manifest.dump());
  }

  mutable absl::Mutex mutex_;
  Gate gate_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  WorkerLink::Handlers handlers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_link_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<std::pair<std::string, int>, std::unique_ptr<Run>> runs_;
  std::vector<std::string> asked_ ABSL_GUARDED_BY(mutex_);
};

class MemoryNodeTest : public SchedulerTest {
 protected:
  void Begin(int64_t steps, const Gate& gate) {
    StoreJob(StoredJob{.steps = steps});
    auto node = std::make_unique<MemoryNode>(gate);
    memory_ = node.get();
    node_ = std::move(node);
    SchedulerLimits limits;
    limits.measure_gpus = absl::Milliseconds(20);  // And the host's memory.
    Start(limits);
  }
  v1::Job AwaitState(v1::Job::State state) {
    return Await([&](const v1::Job& job) { return job.state() == state; });
  }

  void Pause() {
    scheduler_->Pause(kJob, [](const auto&) {});
  }
  void Resume() {
    scheduler_->Resume(kJob, [](const auto&) {});
  }

  MemoryNode* memory_ = nullptr;  // The scheduler's.
};

TEST_F(MemoryNodeTest, AJobGoesItsWholeWay) {
  Begin(/*steps=*/5, {.open_to = 3});
  const v1::Job running = Await([](const v1::Job& job) {
    return job.progress().global_step() == 3 && job.memory().process_peak_bytes() > 0;
  });
  EXPECT_EQ(running.state(), v1::Job::STATE_RUNNING);
  EXPECT_EQ(running.worker_pid(), kWorkerNumber);
  EXPECT_EQ(running.memory().process_peak_bytes(), kPeakBytes);
  EXPECT_EQ(running.memory().looks(0).seen_bytes(), kCountedBytes);
  EXPECT_EQ(running.memory().warning(), "");
  memory_->OpenGate(5);
  const v1::Job job = AwaitState(v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(job.epoch(), 1);
  EXPECT_EQ(job.progress().global_step(), 5);
  const std::string output = index_.OutputOf(kJob).value();
  EXPECT_TRUE(fs::exists(output + "/adapter_model.safetensors"));
  for (int i = 0; i < 1000 && memory_->asked().size() < 6; ++i) absl::SleepFor(kPause);
  EXPECT_THAT(memory_->asked(),
              ElementsAre("sweep", "expect", "start", "welcome", "collect", "sweep"));
  EXPECT_EQ(index_.devices().front().reserved_bytes(), 0);
  // Nothing of this machine was made for it.
  EXPECT_FALSE(fs::exists(dir_ + "/state/link.sock"));
  EXPECT_EQ(memory_->AssignmentOf(kJob, 1).link_socket(), "");
}

// What it brings of a stopped attempt is what the next one goes on from.
TEST_F(MemoryNodeTest, APausedJobGoesOnFromWhatWasBrought) {
  Begin(/*steps=*/5, {.open_to = 2});
  const v1::Job running =
      Await([](const v1::Job& job) { return job.progress().global_step() == 2; });
  EXPECT_GT(running.plan_changes().most_bytes(), 0);
  EXPECT_EQ(memory_->AssignmentOf(kJob, 1).most_bytes(), running.plan_changes().most_bytes());
  Pause();
  EXPECT_EQ(AwaitState(v1::Job::STATE_PAUSED).plan_changes().most_bytes(), 0);
  memory_->OpenGate(5);
  Resume();
  const v1::Job job = AwaitState(v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(job.epoch(), 2);
  EXPECT_EQ(memory_->AssignmentOf(kJob, 2).resume_from(),
            CheckpointsDir(dir_ + "/state", kJob) + "/step-2.e1");
}

TEST_F(MemoryNodeTest, MemoryThatNobodyHasCountedIsAWarning) {
  constexpr int64_t kUncounted = 100 << 20;
  Begin(/*steps=*/5, {.open_to = 1, .uncounted_bytes = kUncounted});
  const auto warned = [](const v1::Job& job) { return !job.memory().warning().empty(); };
  const v1::JobMemory memory = Await(warned).memory();
  EXPECT_EQ(memory.uncounted_bytes(), kUncounted);
  EXPECT_THAT(memory.warning(), testing::HasSubstr("100 MiB of the device beyond the 1024 MiB"));
  EXPECT_THAT(memory.warning(), testing::HasSubstr("before its first step"));
}

// Where no driver tells of processes, what a worker sees of its GPU is its neighbours' too.
TEST_F(MemoryNodeTest, WhatWasSeenBesideANeighbourIsNotJudgedOnceThatHasEnded) {
  constexpr const char* kNeighbour = "job-2";
  constexpr int64_t kOfNeighbour = 100 << 20;
  device_.name = "gpu:0";
  StoreJob(StoredJob{.id = kNeighbour, .order = 2, .steps = 5});
  Begin(/*steps=*/5, {.open_to = 0, .uncounted_bytes = kOfNeighbour});
  for (const char* id : {kJob, kNeighbour})
    ASSERT_EQ(Await([](const v1::Job& job) { return job.worker_pid() != 0; }, id).worker_pid(),
              kWorkerNumber);
  memory_->OpenGate(1);
  const v1::JobMemory beside =
      Await([](const v1::Job& job) { return job.progress().global_step() == 1; }).memory();
  ASSERT_EQ(beside.looks_size(), 1);
  EXPECT_EQ(beside.looks(0).seen_bytes() - beside.looks(0).counted_bytes(), kOfNeighbour);
  Cancel(kNeighbour);
  Cancelled(kNeighbour);
  memory_->OpenGate(5);
  const v1::Job job = AwaitState(v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(job.progress().global_step(), 5);
  EXPECT_EQ(job.memory().warning(), "");
}

TEST_F(MemoryNodeTest, ACancelledJobIsSignalled) {
  Begin(/*steps=*/5, {.open_to = 1});
  Await([](const v1::Job& job) { return job.progress().global_step() == 1; });
  Cancel(kJob);
  EXPECT_EQ(AwaitState(v1::Job::STATE_CANCELLED).epoch(), 1);
  EXPECT_EQ(index_.devices().front().reserved_bytes(), 0);
}

}  // namespace
}  // namespace snug::server

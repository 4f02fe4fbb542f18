// The scheduler over a real store, shim and link, with the worker that trains nothing.
#ifndef TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_
#define TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "server/job/check_spec.h"
#include "server/node/local_node.h"
#include "server/scheduler/scheduler.h"
#include "tests/server/testing/test_folder.h"
#include "tests/server/testing/tiny_model.h"
#include "worker/program/model_config.h"

namespace snug::server {

namespace fs = std::filesystem;

inline constexpr const char* kJob = "job-1";

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() {
    fs::create_directories(dir_ + "/state/datasets");
    fs::create_directories(dir_ + "/state/jobs");
    WriteTinyModel(dir_ + "/model");
    WriteTinyDataset(dir_ + "/train.jsonl", 8, 20);
  }
  ~SchedulerTest() override {
    if (scheduler_ != nullptr) scheduler_->Drain();
  }

  // A job that an earlier life of the daemon has stored; the fake worker does what `script` says.
  void StoreJob(const std::string& script, const std::string& init_adapter = "") {
    StoreJob({.script = script, .init_adapter = init_adapter});
  }

  struct StoredJob {
    std::string id = kJob;
    int order = 1;
    int priority = 0;
    int rows = 0;       // Of a batch; 0: as many as by default.
    int64_t steps = 0;  // Likewise.
    std::string script, init_adapter, dataset = "train.jsonl";
  };
  v1::JobSpec SpecOf(const StoredJob& job) const {
    v1::JobSpec spec;
    spec.set_display_name(job.script);
    spec.set_model(dir_ + "/model");
    spec.set_dataset(dir_ + "/" + job.dataset);
    spec.set_method(v1::JobSpec::METHOD_LORA);
    spec.set_sharing("none");  // What is reserved is then each job's own.
    if (job.rows > 0) spec.mutable_training()->set_per_device_train_batch_size(job.rows);
    if (job.steps > 0) spec.mutable_training()->set_max_steps(job.steps);
    if (!job.init_adapter.empty()) spec.mutable_lora()->set_init_adapter(job.init_adapter);
    FillDefaults(spec, 128);
    return spec;
  }
  void StoreJob(const StoredJob& job) {
    JobRecord record;
    record.order = job.order;
    record.job.set_id(job.id);
    record.job.set_priority(job.priority);
    record.job.set_state(v1::Job::STATE_PREPARING);
    *record.job.mutable_spec() = SpecOf(job);
    auto store = JobStore::Open({.state_dir = dir_ + "/state"}).value();
    ASSERT_TRUE(store->Commit({.job = &record}).ok());
  }

  // One that such a job can start from.
  void WriteAdapter(const std::string& folder) {
    const v1::JobSpec spec = SpecOf({});
    const auto config = program::ReadModelConfig(dir_ + "/model").value();
    fs::create_directories(folder);
    WriteText(folder + "/adapter_config.json",
              R"({"r": 16, "lora_alpha": 32, "target_modules": "all-linear"})");
    WriteParameters(folder + "/adapter_model.safetensors",
                    program::BuildProgram(config, ModeOf(spec)).value(), Holds::kAdapter);
  }

  void Start(SchedulerLimits limits) {
    store_ = JobStore::Open({.state_dir = dir_ + "/state"}).value();
    const std::string bin = std::getenv("SNUG_BIN_DIR");
    preparer_ =
        std::make_unique<Preparer>(PrepareSettings{.confine = bin + "/snug-confine",
                                                   .python = python_,
                                                   .script = std::getenv("SNUG_PREPARE"),
                                                   .datasets_dir = dir_ + "/state/datasets"});
    if (node_ == nullptr)
      node_ =
          std::make_unique<LocalNode>(LauncherSettings{.shim = bin + "/snug-shim",
                                                       .worker = std::getenv("SNUG_FAKE_WORKER"),
                                                       .state_dir = dir_ + "/state",
                                                       .instance = store_->instance_uuid()});
    SchedulerSettings settings{.state_dir = dir_ + "/state",
                               .node = std::move(node_),
                               .devices = {device_},
                               .inspector = reader_ == nullptr ? inspector_ : *reader_,
                               .limits = limits};
    scheduler_ =
        Scheduler::Start(std::move(settings), *store_, index_, *preparer_, metrics_).value();
  }

  void Cancel(const std::string& id, bool keep = false) {
    v1::CancelJobRequest request;
    request.set_id(id);
    request.set_keep(keep);
    scheduler_->Cancel(request, [](const auto&) {});
  }
  v1::Job Cancelled(const std::string& id = kJob) {
    return Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_CANCELLED; }, id);
  }

  // The job as soon as it is so; as it is after 60 s otherwise.
  v1::Job Await(const std::function<bool(const v1::Job&)>& so, const std::string& id = kJob) {
    const absl::Time end = absl::Now() + absl::Seconds(60);
    while (!so(*index_.Find(id).value()) && absl::Now() < end)
      absl::SleepFor(absl::Milliseconds(20));
    return *index_.Find(id).value();
  }
  v1::Job Ended() {
    return Await([](const v1::Job& job) {
      return job.state() == v1::Job::STATE_SUCCEEDED || job.state() == v1::Job::STATE_FAILED;
    });
  }

  const TestFolder folder_{"sched"};
  const std::string dir_ = folder_.path();
  std::string python_ = std::getenv("SNUG_PYTHON");  // Of snug-prepare.
  Device device_{.name = "cpu:0", .capacity_bytes = 1 << 30, .context_bytes = 8 << 20};
  JobIndex index_;
  Metrics metrics_;
  Inspector inspector_{{.program = std::string(std::getenv("SNUG_BIN_DIR")) + "/snug-inspect"}};
  std::unique_ptr<Inspector> reader_;  // Of the next Start; null: `inspector_`.
  std::unique_ptr<Node> node_;         // Of the next Start; null: this machine.
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<Preparer> preparer_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace snug::server

#endif  // TESTS_SERVER_SCHEDULER_SCHEDULER_FIXTURE_H_

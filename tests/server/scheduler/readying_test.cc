// Which datasets have the thread that is kept for small ones, and for how long; and how much of a
// job that is ready is kept.
#include "server/scheduler/readying.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/notification.h"
#include "tests/server/scheduler/scheduler_fixture.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

using ReadyingTest = SchedulerTest;

// What starts snug-prepare for all datasets but those that are called so, for which it never ends.
std::string NeverEndsWithEndlessOnes() {
  const char* const script = R"(#!/bin/sh
for word; do
  case "$word" in --sources=*)
    grep -q endless "${word#--sources=}" && exec sleep 1000 ;;
  esac
done
)";
  return absl::StrCat(script, "exec ", std::getenv("SNUG_PYTHON"), " \"$@\"\n");
}

// Makes the model of these tests one of so many layers.
void MakeDeep(const std::string& model, int layers) {
  const std::string config = absl::StrReplaceAll(
      ReadText(model + "/config.json"),
      {{"\"num_hidden_layers\": 2", absl::StrCat("\"num_hidden_layers\": ", layers)}});
  WriteText(model + "/config.json", config);
  const auto parsed = program::ParseModelConfig(config, "config.json").value();
  ASSERT_EQ(parsed.layers, layers);
  WriteParameters(model + "/model.safetensors", program::BuildProgram(parsed, {}).value(),
                  Holds::kBase);
}

// What is held of a job beside its program: of what has maps as it is sent, for libprotobuf counts
// these by a layout that a sanitizer's headers do not have.
size_t BytesKept(const JobRecord& record, const ReadyJob& ready) {
  size_t bytes =
      record.job.ByteSizeLong() + ready.checked.spec.ByteSizeLong() + ready.summary.ByteSizeLong();
  if (ready.checked.opened != nullptr) bytes += ready.checked.opened->SpaceUsedLong();
  for (const auto& [device, plans] : *ready.plans)
    for (const v1::Plan& plan : plans) bytes += plan.SpaceUsedLong();
  return bytes;
}

// Two hold all threads. The one that has the thread for small datasets goes back to the queue,
// which is no failure of its own, and the third is prepared.
TEST_F(ReadyingTest, SmallDatasetsThatNeverEndHoldUpNoOther) {
  python_ = dir_ + "/python";
  WriteText(python_, NeverEndsWithEndlessOnes());
  fs::permissions(python_, fs::perms::owner_all);
  WriteTinyDataset(dir_ + "/endless-1.jsonl", 4, 20);
  WriteTinyDataset(dir_ + "/endless-2.jsonl", 5, 20);
  StoreJob({.id = "a", .order = 1, .script = "steps=1", .dataset = "endless-1.jsonl"});
  StoreJob({.id = "b", .order = 2, .script = "steps=1", .dataset = "endless-2.jsonl"});
  Start({.small_dataset = absl::Seconds(15)});  // Enough for the third on a busy machine.
  // What comes to the threads first is not told by the order of the jobs.
  for (const char* id : {"a", "b"})
    Await([](const v1::Job& job) { return !job.reason().empty(); }, id);
  absl::Notification made;
  scheduler_->Create({.spec = SpecOf({.script = "steps=1"}), .job_id = "c"},
                     [&](const auto&) { made.Notify(); });
  made.WaitForNotification();
  const v1::Job ended =
      Await([](const v1::Job& job) { return job.state() == v1::Job::STATE_SUCCEEDED; }, "c");
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED) << ended.ShortDebugString();
  int sent_back = 0;
  std::string reasons;
  for (const char* id : {"a", "b"}) {
    const v1::Job job = *index_.Find(id).value();
    EXPECT_EQ(job.state(), v1::Job::STATE_PREPARING) << job.ShortDebugString();
    absl::StrAppend(&reasons, id, ": ", job.reason(), "\n");
    if (absl::StrContains(job.reason(), "among large datasets")) ++sent_back;
  }
  EXPECT_EQ(sent_back, 1) << reasons;
  for (const char* id : {"a", "b"}) {
    Cancel(id);
    EXPECT_EQ(Cancelled(id).state(), v1::Job::STATE_CANCELLED);
  }
}

// Ten thousand jobs may wait, and 1,024 layers are the most that a config.json may have. Of such a
// job the plans for placing it are kept: some 17 for each share of a device's threads, each with 4
// bytes for a layer and a few kilobytes of names. Its program, or a plan for each number of layers
// that are run again, as people are shown them, would be megabytes.
TEST_F(ReadyingTest, OfAModelOfManyLayersLittleIsKept) {
  constexpr size_t kMostKept = 1 << 20;
  ASSERT_NO_FATAL_FAILURE(MakeDeep(dir_ + "/model", 1024));
  StoreJob("steps=100000");
  Start({});
  const v1::Job begun =
      Await([](const v1::Job& job) { return job.state() != v1::Job::STATE_PREPARING; });
  ASSERT_NE(begun.state(), v1::Job::STATE_FAILED) << begun.ShortDebugString();
  bool has_program = true;
  size_t plans = 0, kept = 0;
  absl::Notification looked;
  SchedulerCore& core = scheduler_->core();
  core.Post([&] {
    const Entry* entry = core.Find(kJob);
    if (entry != nullptr && entry->ready() != nullptr) {
      has_program = entry->ready()->checked.program != nullptr;
      plans = entry->ready()->plans->at("cpu:0").size();
      kept = BytesKept(entry->record, *entry->ready());
    }
    looked.Notify();
  });
  looked.WaitForNotification();
  Cancel(kJob);
  EXPECT_EQ(Cancelled().state(), v1::Job::STATE_CANCELLED);
  std::printf("%zu plans, %zu bytes kept\n", plans, kept);
  EXPECT_GT(plans, 1u);
  EXPECT_FALSE(has_program);
  EXPECT_GT(kept, plans * 4 * 1024);  // They are spelled out layer by layer: it did count them.
  EXPECT_LT(kept, kMostKept);
}

TEST_F(ReadyingTest, WhatIsPackedCountsForManyTimesItsBytes) {
  const auto is_small = [this](const std::string& name, uint64_t mebibytes) {
    v1::JobSpec spec;
    spec.set_dataset(dir_ + "/" + name);
    WriteText(spec.dataset(), "{}");
    fs::resize_file(spec.dataset(), mebibytes << 20);
    return IsSmallDataset(spec);
  };
  EXPECT_TRUE(is_small("rows.jsonl", 63));
  EXPECT_FALSE(is_small("rows.jsonl", 64));
  for (const char* name : {"rows.jsonl.zst", "rows.json.gz", "rows.parquet", "ROWS.ARROW"}) {
    EXPECT_TRUE(is_small(name, 3)) << name;
    EXPECT_FALSE(is_small(name, 5)) << name;
  }
}

}  // namespace
}  // namespace snug::server

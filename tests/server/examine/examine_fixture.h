// A store in a folder of the test's own that is examined.
#ifndef TESTS_SERVER_EXAMINE_EXAMINE_FIXTURE_H_
#define TESTS_SERVER_EXAMINE_EXAMINE_FIXTURE_H_

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/artifact/output.h"
#include "server/data/sha256.h"
#include "server/examine/examination.h"
#include "tests/server/job/store_fixture.h"

namespace snug::server {

inline void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

class ExamineTest : public JobStoreTest {
 protected:
  // One device of 1,000 bytes.
  Premises APremises() const {
    return {.state_dir = dir_, .devices = {{.name = "cpu:0", .capacity_bytes = 1000}}};
  }

  static std::vector<std::string> NamesOf(const v1::CheckStoreResponse& examined) {
    std::vector<std::string> checks;
    for (const auto& finding : examined.findings()) checks.push_back(finding.check());
    return checks;
  }

  std::vector<std::string> ChecksThatFound(JobStore& store, const Rest& rest = nullptr) const {
    return NamesOf(Examine(store, APremises(), rest).value());
  }

  // As the examiner does it, without its rests.
  std::vector<std::string> ChecksThatFoundAtAPace(JobStore& store) const {
    return ChecksThatFound(store, [](absl::Duration) { return true; });
  }

  // What the rows are made to say while nobody has the store open.
  void Write(const std::string& sql) const {
    ASSERT_TRUE(Database::Open(dir_ + "/snug.db").value()->Execute(sql).ok()) << sql;
  }

  // The store as it is now, whatever its witness says.
  std::unique_ptr<JobStore> Reopened() const {
    return JobStore::Open({.state_dir = dir_, .ballast_bytes = 0, .accept_loss = true}).value();
  }

  std::vector<std::string> FoundAfter(const std::string& damage) const {
    Write(damage);
    return ChecksThatFound(*Reopened());
  }

  // A checkpoint of the job's first attempt, of one file, in its folder: its row.
  CheckpointRecord SaveCheckpoint(const std::string& job, int step,
                                  const std::string& weights = "w") const {
    CheckpointRecord row{.job = job, .step = step, .epoch = 1};
    row.dir = absl::StrCat(dir_, "/jobs/", job, "/checkpoints/step-",
                           absl::Dec(step, absl::kZeroPad6), ".e1");
    fs::create_directories(row.dir);
    WriteText(row.dir + "/weights", weights);
    const std::string manifest =
        absl::StrCat("{\"step\": ", step,
                     ", \"epoch\": 1, \"files\": {\"weights\": {\"bytes\": ", weights.size(),
                     ", \"sha256\": \"", Sha256Hex(weights), "\"}}}");
    WriteText(row.dir + "/MANIFEST.json", manifest);
    row.manifest_sha256 = Sha256Hex(manifest);
    return row;
  }

  // A job that has succeeded, and its output in the folder out-<job>.
  void CommitOutput(JobStore& store, const std::string& id = "a", int epoch = 0) {
    const std::string out = dir_ + "/out-" + id;
    fs::create_directories(out);
    WriteText(out + "/adapter_model.safetensors", std::string(3'000'000, 'w'));
    JobRecord job = AJob(id, 1);
    job.job.set_state(Job::STATE_SUCCEEDED);
    Change change{.job = &job, .artifact = HashOutput(out).value()};
    change.artifact->job = id;
    change.artifact->epoch = epoch;
    change.events = {{.job = id, .to = Job::STATE_SUCCEEDED}};
    ASSERT_TRUE(store.Commit(change).ok());
  }
};

}  // namespace snug::server

#endif  // TESTS_SERVER_EXAMINE_EXAMINE_FIXTURE_H_

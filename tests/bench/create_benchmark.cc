// What a submit's checks take of a CPU before it is stored: at most 0.2 ms. The
// job has a model, a dataset and an evaluation set; asked by the daemon's own user, and by a
// tenant, for whom every file is opened below his roots. No test passes or fails by it.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "server/inspect/inspector.h"
#include "server/job/job_index.h"
#include "server/scheduler/advice.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

v1::JobSpec SpecIn(const std::string& folder) {
  fs::create_directories(folder);
  WriteTinyModel(folder + "/model");
  WriteTinyDataset(folder + "/train.jsonl", 100, 20);
  WriteTinyDataset(folder + "/eval.jsonl", 10, 20);
  v1::JobSpec spec;
  spec.set_model(folder + "/model");
  spec.set_dataset(folder + "/train.jsonl");
  spec.set_eval_dataset(folder + "/eval.jsonl");
  spec.set_method(v1::JobSpec::METHOD_LORA);
  spec.mutable_lora()->set_r(16);
  spec.mutable_training()->set_max_steps(1000);
  spec.mutable_training()->set_eval_steps(100);
  return spec;
}

void CheckForm(benchmark::State& state) {
  const std::string folder =
      fs::temp_directory_path().string() + "/create-" + std::to_string(getpid());
  const v1::JobSpec spec = SpecIn(folder);
  const Principal who = state.range(0) == 0 ? DaemonPrincipal() : Principal{.tenant = "lab"};
  JobIndex index;
  Preparer preparer(PrepareSettings{.datasets_dir = folder + "/datasets"});
  Inspector inspector({.roots = {.of_tenants = {{"lab", {folder}}}}});
  Advisor advisor(index, preparer, inspector, {.state_dir = folder});
  for (auto _ : state) {
    const absl::Status status = advisor.CheckForm(spec, who, InputFiles::kNamed);
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  fs::remove_all(folder);
}
BENCHMARK(CheckForm)->ArgName("tenant")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace snug::server

// snug-step: times the training step of a model of random weights, on any device. It needs torch,
// kernels/, worker/program and worker/execute alone, so that it builds where there is no gRPC
// (cmake -DSNUG_STEP_ONLY=ON).
//
//   snug-step --model DIR --device gpu:0 --lora 16 --bf16 --rows 4 --tokens 512 --recompute 0
//
// Prints one line of JSON: seconds of forward and backward, of the optimizer, tokens and flops per
// second, and what was predicted and taken of the device's memory. It judges nothing.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "tests/bench/step/random_model.h"
#include "worker/execute/executor.h"
#include "worker/program/lower.h"
#include "worker/program/plan.h"
#include "worker/program/predict.h"
#include "worker/program/replay.h"

namespace snug::bench {
namespace {

struct Options {
  std::string model;
  std::string device = "cpu:0";
  int threads = 2;
  int lora = 16;  // Rank; 0: all of the model.
  bool bf16 = false;
  int rows = 4;
  int tokens = 512;
  int recompute = 0;  // Layers.
  int steps = 5;
};

absl::StatusOr<Options> Parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::string*> texts = {{"--model", &options.model},
                                                     {"--device", &options.device}};
  const std::map<std::string, int*> numbers = {
      {"--threads", &options.threads}, {"--lora", &options.lora},
      {"--rows", &options.rows},       {"--tokens", &options.tokens},
      {"--steps", &options.steps},     {"--recompute", &options.recompute}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--bf16") {
      options.bf16 = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    const auto text = texts.find(name);
    const auto number = numbers.find(name);
    if (text != texts.end()) *text->second = value;
    const bool read = number != numbers.end() && absl::SimpleAtoi(value, number->second);
    if (text == texts.end() && !read)
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": no such option"));
  }
  if (options.model.empty()) return absl::InvalidArgumentError("--model DIR is missing");
  return options;
}

program::TrainingMode ModeOf(const Options& options) {
  program::TrainingMode mode;
  mode.lora = options.lora > 0;
  mode.adapter.rank = options.lora;
  mode.adapter.alpha = options.lora;
  mode.compute = options.bf16 ? program::DType::kBF16 : program::DType::kF32;
  return mode;
}

double Seconds(const std::function<absl::Status()>& work, absl::Status& status) {
  const auto begin = std::chrono::steady_clock::now();
  if (status.ok()) status = work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

absl::Status Run(const Options& options) {
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(const program::Program program, program::BuildProgram(config, ModeOf(options)));
  ASSIGN_OR_RETURN(const auto device, execute::OpenDevice(options.device, options.threads));
  const std::vector<int64_t> lengths(static_cast<size_t>(options.rows), options.tokens);
  const program::TapeKey key = {.tokens = int64_t{options.rows} * options.tokens,
                                .documents = options.rows,
                                .longest_document = options.tokens};
  ASSIGN_OR_RETURN(const program::Tape tape,
                   program::Lower(program, program::RecomputePlan(program, options.recompute),
                                  {.key = key, .machine = device->machine(), .training = true}));
  ASSIGN_OR_RETURN(RandomModel model, RandomModel::Create(program, *device));
  ASSIGN_OR_RETURN(RandomBatch batch, RandomBatch::Create(program, lengths, *device));
  ASSIGN_OR_RETURN(execute::ArenaMemory arena,
                   execute::ArenaMemory::Allocate(*device, tape.arena_bytes));
  execute::Executor executor(program, model.views(), *device);
  std::vector<double> step, optimizer;
  absl::Status status;
  double loss = 0.0;
  for (int i = 0; i <= options.steps; ++i) {  // The first sets up threads and kernels.
    const double passes = Seconds(
        [&]() -> absl::Status {
          RETURN_IF_ERROR(model.ZeroGradients());
          ASSIGN_OR_RETURN(loss,
                           executor.Run(tape, arena, batch.batch(),
                                        {.loss_scale = 1.0 / static_cast<double>(key.tokens)}));
          return absl::OkStatus();
        },
        status);
    const double update = Seconds([&] { return model.Step(i + 1); }, status);
    RETURN_IF_ERROR(status);
    if (i == 0) continue;
    step.push_back(passes);
    optimizer.push_back(update);
  }
  const program::Replay replay = program::ReplayTape(program, tape);
  const double seconds = Median(step);
  std::cout
      << nlohmann::json{{"device", device->name()},
                        {"loss", loss},
                        {"step_seconds", seconds},
                        {"optimizer_seconds", Median(optimizer)},
                        {"tokens_per_second", static_cast<double>(key.tokens) / seconds},
                        {"flops_per_second", replay.work.flops / seconds},
                        {"arena_bytes", tape.arena_bytes},
                        {"predicted_bytes",
                         program::StaticComponents(program, key, device->machine(), 0).total() +
                             tape.arena_bytes},
                        {"peak_bytes", device->allocator().usage().peak_bytes}}
             .dump()
      << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) {
  const auto options = snug::bench::Parse(argc, argv);
  const absl::Status status = options.ok() ? snug::bench::Run(*options) : options.status();
  if (!status.ok()) std::cerr << "snug-step: " << status << std::endl;
  return status.ok() ? 0 : options.ok() ? 1 : 2;
}

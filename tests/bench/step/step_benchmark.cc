// snug-step: times the training step of models of random weights, on any device. It needs torch,
// kernels/, worker/program and worker/execute alone, so that it builds where there is no gRPC
// (cmake -DSNUG_STEP_ONLY=ON).
//
//   snug-step --model DIR --device gpu:0 --lora 16 --bf16 --rows 4 --tokens 512 --recompute 0
//   snug-step --model DIR --stash keep --model DIR --stash offload
//   snug-step --model DIR --stash '*=recompute,layers.*.input=offload'
//
// Several --model take turns, step by step, so that what slows the machine down slows all of them.
// --stash is of the model before it, and pins its plan: a kind for all values, or kinds by pattern.
// --profile: how long each kind of op took in a step, by the device's clock. --predict: no step,
// but the bytes that a GPU would need for it, by component, and its flops; no GPU is needed for
// that. --quantization nf4 (or int8), beside --predict: of a frozen base held so.
// --version says only what this is.
//
// Prints one line of JSON for each: seconds of forward and backward, of the same in processors'
// time, of the optimizer, tokens and flops per second, and what was predicted and, by all models
// together, taken of the device's memory; on a GPU also what its driver counts, of all processes:
// when this one has begun, when weights and arena are there, and after the last step. It judges
// nothing.
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/snug/status_macros.h"
#include "tests/bench/step/random_model.h"
#include "tests/bench/step/timed_device.h"
#include "worker/execute/executor.h"
#include "worker/program/lower.h"
#include "worker/program/plan.h"
#include "worker/program/planning/predict.h"
#include "worker/program/replay.h"

namespace snug::bench {
namespace {

struct Subject {
  std::string folder;
  std::string stash;  // As it was given; empty: by --recompute.
};

struct Options {
  std::vector<Subject> models;
  std::string device = "cpu:0";
  int threads = 2;
  int lora = 16;  // Rank; 0: all of the model.
  program::Quantization quantization = program::Quantization::kNone;
  bool bf16 = false, profile = false, predict = false, version = false;
  int rows = 4;
  int tokens = 512;
  int recompute = 0;  // Layers.
  int steps = 5;
};

absl::StatusOr<Options> Parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, int*> numbers = {
      {"--threads", &options.threads}, {"--lora", &options.lora},
      {"--rows", &options.rows},       {"--tokens", &options.tokens},
      {"--steps", &options.steps},     {"--recompute", &options.recompute}};
  const std::map<std::string, program::Quantization> quantizations = {
      {"nf4", program::Quantization::kNf4}, {"int8", program::Quantization::kInt8}};
  const std::map<std::string, bool*> flags = {{"--bf16", &options.bf16},
                                              {"--profile", &options.profile},
                                              {"--predict", &options.predict},
                                              {"--version", &options.version}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const auto flag = flags.find(name);
    if (flag != flags.end()) {
      *flag->second = true;
      continue;
    }
    const std::string value = i + 1 < argc ? argv[++i] : "";
    const auto number = numbers.find(name);
    if (name == "--model") {
      options.models.push_back({.folder = value, .stash = {}});
    } else if (name == "--stash" && !options.models.empty()) {
      options.models.back().stash = value;
    } else if (name == "--device") {
      options.device = value;
    } else if (name == "--quantization" && quantizations.contains(value)) {
      options.quantization = quantizations.at(value);
    } else if (number == numbers.end() || !absl::SimpleAtoi(value, number->second)) {
      return absl::InvalidArgumentError(absl::StrCat(name, " ", value, ": no such option"));
    }
  }
  if (options.models.empty() && !options.version)
    return absl::InvalidArgumentError("--model DIR is missing");
  if (options.quantization != program::Quantization::kNone && !options.predict)
    return absl::InvalidArgumentError("--quantization is for --predict alone");
  return options;
}

program::TrainingMode ModeOf(const Options& options) {
  program::TrainingMode mode;
  mode.lora = options.lora > 0;
  mode.adapter.rank = options.lora;
  mode.adapter.alpha = options.lora;
  mode.quantization = options.quantization;
  mode.compute = options.bf16 ? program::DType::kBF16 : program::DType::kF32;
  return mode;
}

double Clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A model, its batch, and how long its steps took.
struct Model {
  program::Program program;
  program::Tape tape;
  program::TapeKey key;
  RandomModel weights;
  RandomBatch batch;
  execute::ArenaMemory arena;
  std::optional<execute::Executor> executor = {};  // Points into what is above.

  double loss = 0.0;
  std::vector<double> step = {}, cpu = {}, optimizer = {};
  std::map<std::string, TimedDevice::Time> parts = {};  // Of the last step.

  absl::Status Step(int64_t number) {
    const double begin = Clock(CLOCK_MONOTONIC), cpu_begin = Clock(CLOCK_PROCESS_CPUTIME_ID);
    ASSIGN_OR_RETURN(loss, executor->Run(tape, arena, batch.batch(),
                                         {.loss_scale = 1.0 / static_cast<double>(key.tokens)}));
    const double end = Clock(CLOCK_MONOTONIC), cpu_end = Clock(CLOCK_PROCESS_CPUTIME_ID);
    RETURN_IF_ERROR(weights.Step(number));
    if (number == 1) return absl::OkStatus();  // It sets up threads and kernels.
    step.push_back(end - begin);
    cpu.push_back(cpu_end - cpu_begin);
    optimizer.push_back(Clock(CLOCK_MONOTONIC) - end);
    return absl::OkStatus();
  }
};

program::TapeKey KeyOf(const Options& options) {
  return {.tokens = int64_t{options.rows} * options.tokens,
          .documents = options.rows,
          .longest_document = options.tokens};
}

struct Lowered {
  program::Program program;
  program::Tape tape;
};

absl::StatusOr<program::Plan> PlanOf(const program::Program& program, const std::string& stash,
                                     int recompute) {
  if (stash.empty()) return program::RecomputePlan(program, recompute);
  std::map<std::string, program::SiteStash> patterns;
  const std::vector<std::string> parts = absl::StrSplit(stash, ',');
  for (const std::string& part : parts) {
    const size_t equals = part.rfind('=');
    const bool bare = equals == std::string::npos;
    const auto kind = program::StashOfName(bare ? part : part.substr(equals + 1));
    if (!kind.has_value())
      return absl::InvalidArgumentError(absl::StrCat("--stash ", part, ": no such kind"));
    patterns[bare ? "*" : part.substr(0, equals)] = *kind;
  }
  return program::PinnedPlan(program, patterns);
}

absl::StatusOr<Lowered> LowerStep(const Subject& subject, const Options& options,
                                  const program::Machine& machine) {
  ASSIGN_OR_RETURN(const program::ModelConfig config, program::ReadModelConfig(subject.folder));
  ASSIGN_OR_RETURN(program::Program program, program::BuildProgram(config, ModeOf(options)));
  ASSIGN_OR_RETURN(const program::Plan plan, PlanOf(program, subject.stash, options.recompute));
  ASSIGN_OR_RETURN(
      program::Tape tape,
      program::Lower(program, plan, {.key = KeyOf(options), .machine = machine, .training = true}));
  return Lowered{std::move(program), std::move(tape)};
}

absl::StatusOr<std::unique_ptr<Model>> Open(const Subject& subject, const Options& options,
                                            execute::Device& device) {
  ASSIGN_OR_RETURN(Lowered lowered, LowerStep(subject, options, device.machine()));
  auto& [program, tape] = lowered;
  const std::vector<int64_t> lengths(static_cast<size_t>(options.rows), options.tokens);
  ASSIGN_OR_RETURN(RandomModel weights, RandomModel::Create(program, device));
  ASSIGN_OR_RETURN(RandomBatch batch, RandomBatch::Create(program, lengths, device));
  ASSIGN_OR_RETURN(execute::ArenaMemory arena,
                   execute::ArenaMemory::Allocate(device, tape.arena_bytes, tape.host_bytes));
  std::unique_ptr<Model> model(new Model{.program = std::move(program),
                                         .tape = std::move(tape),
                                         .key = KeyOf(options),
                                         .weights = std::move(weights),
                                         .batch = std::move(batch),
                                         .arena = std::move(arena)});
  model->executor.emplace(model->weights.views(), device);
  return model;
}

nlohmann::json PartsOf(const Model& model) {
  nlohmann::json parts = nlohmann::json::object();
  for (const auto& [name, time] : model.parts) {
    parts[name] = {{"seconds", time.seconds}, {"calls", time.calls}};
  }
  return parts;
}

// The driver's count for the GPU when it was opened, when all memory was taken, at the end.
using Taken = std::vector<int64_t>;

nlohmann::json Report(const Model& model, execute::Device& device, const Taken& taken) {
  const double seconds = Median(model.step), cpu = Median(model.cpu);
  const double flops = program::ReplayTape(model.tape).work.flops();
  const auto tokens = static_cast<double>(model.key.tokens);
  const int64_t held =
      program::StaticComponents(model.program, model.key, device.machine(), 0).total();
  return {{"device", device.name()},
          {"loss", model.loss},
          {"step_seconds", seconds},
          {"step_cpu_seconds", cpu},
          {"optimizer_seconds", Median(model.optimizer)},
          {"tokens_per_second", tokens / seconds},
          {"flops_per_second", flops / seconds},
          {"flops_per_cpu_second", flops / cpu},
          {"arena_bytes", model.tape.arena_bytes},
          {"host_bytes", model.tape.host_bytes},
          {"predicted_bytes", held + model.tape.arena_bytes},
          {"taken_bytes", taken},
          {"parts", PartsOf(model)},
          {"peak_bytes", device.allocator().usage().peak_bytes}};
}

// Of a GPU, where there need not be one.
absl::StatusOr<nlohmann::json> Predict(const Subject& subject, const Options& options) {
  const program::Machine gpu = {.threads = options.threads, .cpu = false};
  ASSIGN_OR_RETURN(const Lowered lowered, LowerStep(subject, options, gpu));
  const auto bytes = program::StaticComponents(lowered.program, KeyOf(options), gpu, 0);
  return nlohmann::json{{"weights_bytes", bytes.weights},
                        {"adapter_bytes", bytes.adapter},
                        {"gradients_bytes", bytes.gradients},
                        {"optimizer_bytes", bytes.optimizer},
                        {"inputs_bytes", bytes.inputs},
                        {"arena_bytes", lowered.tape.arena_bytes},
                        {"host_bytes", lowered.tape.host_bytes},
                        {"predicted_bytes", bytes.held() + lowered.tape.arena_bytes},
                        {"flops", program::ReplayTape(lowered.tape).work.flops()}};
}

absl::Status PrintPredictions(const Options& options) {
  for (const Subject& subject : options.models) {
    ASSIGN_OR_RETURN(const nlohmann::json predicted, Predict(subject, options));
    std::cout << predicted.dump() << std::endl;
  }
  return absl::OkStatus();
}

absl::Status Run(const Options& options) {
  if (options.version) {
    std::cout << "snug-step" << std::endl;
    return absl::OkStatus();
  }
  if (options.predict) return PrintPredictions(options);
  ASSIGN_OR_RETURN(auto opened, execute::OpenDevice(options.device, options.threads));
  const bool gpu = !opened->machine().cpu;
  TimedDevice timed(std::move(opened));
  execute::Device& device = options.profile ? timed : timed.inner();
  Taken taken;
  const auto look = [&] {
    if (gpu) taken.push_back(TakenBytes(timed.inner()));
  };
  look();
  std::vector<std::unique_ptr<Model>> models;
  for (const Subject& subject : options.models) {
    ASSIGN_OR_RETURN(models.emplace_back(), Open(subject, options, device));
  }
  look();
  for (int step = 1; step <= options.steps + 1; ++step) {
    for (const auto& model : models) {
      RETURN_IF_ERROR(model->Step(step));
      ASSIGN_OR_RETURN(model->parts, timed.Take());
    }
  }
  look();
  for (const auto& model : models) std::cout << Report(*model, device, taken).dump() << std::endl;
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

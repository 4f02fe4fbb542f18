// snug-probe: the worker's trainer without daemon, checkpoints or export, for tests that compare
// its numbers with another's. Trains some steps on a prepared dataset and writes down losses, the
// gradients of the first step, the weights after the last, and memory. tests/parity/probe.py
// describes the files.
#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "worker/checkpoint/safetensors_writer.h"
#include "worker/execute/cpu_isa.h"
#include "worker/link/assignment.h"
#include "worker/program/plan.h"
#include "worker/program/planning/predict.h"
#include "worker/program/stages.h"
#include "worker/train/trainer.h"

namespace snug {
namespace {

using checkpoint::TensorBytes;
using nlohmann::json;

struct Request {
  std::string model, data, spec, init_adapter, output;
  std::string plan = "keep", device = "cpu:0";
  int64_t steps = 1;
  int threads = static_cast<int>(std::thread::hardware_concurrency());
};

void Declare(CLI::App& app, Request& request) {
  app.add_option("--model", request.model, "Hugging Face model directory")->required();
  app.add_option("--data", request.data, "prepared dataset")->required();
  app.add_option("--spec", request.spec, "JobSpec as proto JSON")->required();
  app.add_option("--output", request.output, "folder for what is written")->required();
  app.add_option("--init-adapter", request.init_adapter, "PEFT adapter directory to start from");
  app.add_option("--plan", request.plan, "mixed: every second block is run again")
      ->check(CLI::IsMember({"keep", "recompute", "mixed"}));
  app.add_option("--steps", request.steps, "optimizer steps")->check(CLI::PositiveNumber);
  app.add_option("--threads", request.threads)->check(CLI::PositiveNumber);
  app.add_option("--device", request.device, "cpu:0 or gpu:0");
}

absl::StatusOr<program::Plan> NamedBy(const program::Program& program, const std::string& name) {
  const auto layers = static_cast<int>(program.config.layers);
  if (name == "keep") return program::RecomputePlan(program, 0);
  if (name == "recompute") return program::RecomputePlan(program, layers);
  std::map<std::string, program::SiteStash> patterns;
  for (int layer = 0; layer < layers; layer += 2) {
    patterns[absl::StrCat("layers.", layer, ".*")] = program::Stash::kRecompute;
  }
  return program::PinnedPlan(program, patterns);
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("could not open ", path));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Setup {
  train::AttemptOptions attempt;
  program::Prediction prediction;
};

absl::StatusOr<Setup> SetUp(const Request& request, const program::Machine& machine) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(request.spec));
  ASSIGN_OR_RETURN(const link::SpecOptions spec, link::ParseSpecJson(text));
  Setup setup;
  train::AttemptOptions& attempt = setup.attempt;
  attempt.model_dir = request.model;
  attempt.task = spec.task;
  attempt.mode = spec.mode;
  attempt.init_adapter = request.init_adapter;
  attempt.training = spec.training;
  attempt.threads = request.threads;
  attempt.train_data = request.data;
  ASSIGN_OR_RETURN(program::ModelConfig config, program::ReadModelConfig(request.model));
  RETURN_IF_ERROR(program::ChooseTask(attempt.task, config));
  ASSIGN_OR_RETURN(const program::Program program, program::BuildProgram(config, attempt.mode));
  ASSIGN_OR_RETURN(const program::Plan plan, NamedBy(program, request.plan));
  attempt.plan = program::NamedPlanOf(program, plan);
  ASSIGN_OR_RETURN(const train::Dataset dataset,
                   train::Dataset::Open(request.data, config.vocabulary));
  const program::Batching batching = train::BatchingOf(spec.training);
  attempt.key =
      program::WithStages(program::WorstBatch(dataset.rows().lengths(), batching), config);
  if (dataset.has_sources())
    attempt.key = program::WithSources(attempt.key, dataset.source_lengths(), batching);
  program::PredictOptions options;
  options.data_bytes = program::DataBytes(dataset.rows().lengths(), {}, batching) +
                       program::SourceBytes(dataset.source_lengths(), {}) +
                       program::RoomOf(config, spec.training.augmentation).bytes();
  options.lower = {.key = attempt.key, .machine = machine, .training = true};
  ASSIGN_OR_RETURN(setup.prediction, program::Predict(program, plan, options));
  return setup;
}

// The trained parameters' values, as the optimizer has them, or gradients, by key. All are fp32.
std::vector<TensorBytes> Trained(train::Trainer& trainer, bool gradients) {
  std::vector<TensorBytes> tensors;
  const auto views = trainer.parameters().views();
  for (size_t i = 0; i < views.size(); ++i) {
    const program::Parameter& parameter = trainer.program().parameters[i];
    if (!parameter.trainable) continue;
    const execute::View& view = gradients ? views[i].gradient : trainer.parameters().exact(i);
    const std::string key = InAdapterFile(parameter) ? AdapterFileKey(parameter) : parameter.key;
    tensors.push_back(
        {key, "F32", parameter.shape, view.data, view.bytes(), trainer.tensor_memory()});
  }
  return tensors;
}

absl::Status WriteJson(const std::string& path, const json& content) {
  std::ofstream file(path);
  file << content.dump(1) << "\n";
  return file.good() ? absl::OkStatus() : absl::UnavailableError("could not write " + path);
}

// Of a step just made, by micro-batch.
std::vector<train::MicroBatch> RowsOf(const train::Trainer& trainer, train::BatchRange range) {
  std::vector<train::MicroBatch> rows;
  for (int64_t b = range.begin; b < range.end; ++b) rows.push_back(trainer.epoch_plan().Batch(b));
  return rows;
}

absl::StatusOr<json> Train(train::Trainer& trainer, const Request& request) {
  json losses = {{"loss", json::array()},
                 {"grad_norm", json::array()},
                 {"learning_rate", json::array()},
                 {"step_seconds", json::array()},
                 {"rows", json::array()}};
  for (int64_t step = 0; step < request.steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    ASSIGN_OR_RETURN(const train::StepResult result, trainer.AccumulateGradients());
    if (step == 0) {
      RETURN_IF_ERROR(checkpoint::WriteSafetensorsFile(request.output + "/gradients.safetensors",
                                                       Trained(trainer, true))
                          .status());
    }
    RETURN_IF_ERROR(trainer.ApplyGradients(result));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    losses["loss"].push_back(result.loss);
    losses["grad_norm"].push_back(result.gradient_norm);
    losses["learning_rate"].push_back(result.learning_rate);
    losses["step_seconds"].push_back(seconds.count());
    losses["rows"].push_back(RowsOf(trainer, result.micro_batches));
  }
  return losses;
}

absl::Status Probe(const Request& request) {
  RETURN_IF_ERROR(execute::UseCpuIsaOfEnvironment());
  ASSIGN_OR_RETURN(const auto device, execute::OpenDevice(request.device, request.threads));
  ASSIGN_OR_RETURN(const Setup setup, SetUp(request, device->machine()));
  ASSIGN_OR_RETURN(const auto trainer, train::Trainer::Create(setup.attempt, *device));
  ASSIGN_OR_RETURN(const json losses, Train(*trainer, request));
  RETURN_IF_ERROR(checkpoint::WriteSafetensorsFile(request.output + "/weights.safetensors",
                                                   Trained(*trainer, false))
                      .status());
  RETURN_IF_ERROR(WriteJson(request.output + "/losses.json", losses));
  const train::Memory memory = trainer->memory();
  return WriteJson(request.output + "/memory.json",
                   {{"predicted_peak_bytes", setup.prediction.bytes.total()},
                    {"measured_peak_bytes", memory.peak_bytes},
                    {"arena_bytes", memory.arena_bytes}});
}

}  // namespace
}  // namespace snug

int main(int argc, char** argv) {
  CLI::App app("Trains on a prepared dataset and writes down what it did.", "snug-probe");
  snug::Request request;
  snug::Declare(app, request);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = snug::Probe(request);
  if (status.ok()) return 0;
  std::cerr << "snug-probe: " << status << "\n";
  return 1;
}

// snug-step-profile ASSIGNMENT [STEPS]: runs the steps of an attempt's assignment, without daemon
// or checkpoints, and prints as one line of JSON where their time goes, by op and direction, and
// what the products alone would take (gemm_floor.h); of each part also what it is predicted from,
// and as what, by rates measured before the steps. Times are medians over the steps after
// the first.
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "proto/snug/status_macros.h"
#include "tests/bench/gemm_floor.h"
#include "worker/execute/gemm.h"
#include "worker/link/assignment.h"
#include "worker/program/op_table.h"
#include "worker/program/replay.h"
#include "worker/train/measure_rates.h"
#include "worker/train/trainer.h"

namespace snug::bench {
namespace {

constexpr int kDefaultSteps = 5;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

double Clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// "op direction" of a line of the tape that runs one.
std::string PartOf(const program::Instruction& line) {
  const bool forward = line.direction == program::Direction::kForward;
  return std::string(program::RowOf(line.op->code).name) + (forward ? " forward" : " backward");
}

// Seconds by part, of one pass over the tape.
std::map<std::string, double> OpSeconds(const train::Trainer& trainer) {
  std::map<std::string, double> seconds;
  const program::Tape& tape = trainer.step_tape();
  for (size_t t = 0; t < tape.instructions.size(); ++t)
    if (tape.instructions[t].kind == program::Instruction::Kind::kRun)
      seconds[PartOf(tape.instructions[t])] += trainer.executor().workspace_use()[t].seconds;
  return seconds;
}

struct PartWork {
  program::Work work;
  int runs = 0;
};

// What the plan's time is reckoned from, by part.
std::map<std::string, PartWork> OpWork(const program::Tape& tape) {
  std::map<std::string, PartWork> parts;
  for (const program::Instruction& line : tape.instructions) {
    if (line.kind != program::Instruction::Kind::kRun) continue;
    PartWork& part = parts[PartOf(line)];
    part.work += line.work;
    ++part.runs;
  }
  return parts;
}

struct Profile {
  std::vector<double> wall, cpu;
  std::map<std::string, std::vector<double>> parts;  // By what took them.
  std::vector<int64_t> documents;                    // Of the last micro-batch.
};

absl::StatusOr<Profile> RunSteps(train::Trainer& trainer, int steps) {
  Profile profile;
  for (int i = 0; i < steps; ++i) {
    const double wall = Clock(CLOCK_MONOTONIC), cpu = Clock(CLOCK_PROCESS_CPUTIME_ID);
    ASSIGN_OR_RETURN(const train::StepResult step, trainer.AccumulateGradients());
    const double applied = Clock(CLOCK_MONOTONIC);
    RETURN_IF_ERROR(trainer.ApplyGradients(step));
    const double end = Clock(CLOCK_MONOTONIC);
    if (i == 0 && steps > 1) continue;  // It sets up threads and kernels.
    profile.wall.push_back(end - wall);
    profile.cpu.push_back(Clock(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    double ops = 0.0;
    for (const auto& [name, seconds] : OpSeconds(trainer)) {
      profile.parts[name].push_back(seconds);
      ops += seconds;
    }
    profile.parts["optimizer"].push_back(end - applied);
    profile.parts["batch, gradient norm"].push_back(applied - wall - ops);
    profile.documents.clear();
    for (int64_t row : trainer.epoch_plan().Batch(step.micro_batches.end - 1)) {
      profile.documents.push_back(trainer.dataset().tokens(row));
    }
  }
  return profile;
}

nlohmann::json Report(const train::Trainer& trainer, const Profile& profile,
                      const program::Machine& machine) {
  const double step = Median(profile.wall);
  nlohmann::json parts = nlohmann::json::array();
  std::map<std::string, PartWork> work = OpWork(trainer.step_tape());
  for (const auto& [name, seconds] : profile.parts) {
    const double median = Median(seconds);
    const PartWork& of = work[name];
    parts.push_back(
        {{"part", name}, {"seconds", median}, {"share", median / step}, {"runs", of.runs}});
    if (machine.cpu)  // Of a GPU not all rates are measured.
      parts.back()["predicted"] = program::SecondsOf(of.work, machine);
    for (size_t i = 0; i < program::kLimits; ++i)
      parts.back()["work"][program::kLimitNames[i]] = of.work.amounts[i];
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a["seconds"].template get<double>() > b["seconds"].template get<double>();
  });
  nlohmann::json floor = nlohmann::json::object();
  Seconds total;
  for (const auto& [kind, seconds] :
       GemmFloor(trainer.program(), trainer.step_tape(), profile.documents)) {
    floor[kind] = {{"seconds", seconds.wall}, {"cpu_seconds", seconds.cpu}};
    total.wall += seconds.wall;
    total.cpu += seconds.cpu;
  }
  return {{"step_seconds", step},
          {"step_cpu_seconds", Median(profile.cpu)},
          {"floor_seconds", total.wall},
          {"floor_cpu_seconds", total.cpu},
          {"floor", floor},
          {"flops", program::ReplayTape(trainer.step_tape()).work.flops()},
          {"parts", parts},
          {"products", execute::GemmChoiceText(execute::GemmChoiceInUse())}};
}

absl::Status Run(const std::string& assignment, int steps) {
  ASSIGN_OR_RETURN(const train::AttemptOptions attempt, link::ReadAssignment(assignment));
  ASSIGN_OR_RETURN(const auto device, execute::OpenDevice(attempt.device, attempt.threads));
  if (const auto choice = execute::ParseGemmChoice(attempt.products); choice.ok()) {
    execute::UseGemmChoice(*choice);
  }
  ASSIGN_OR_RETURN(const program::MachineRates rates, train::MeasureRates(*device));
  ASSIGN_OR_RETURN(const auto trainer, train::Trainer::Create(attempt, *device));
  ASSIGN_OR_RETURN(const Profile profile, RunSteps(*trainer, steps));
  program::Machine machine = device->machine();
  machine.rates = rates.At(trainer->program().compute);
  std::cout << Report(*trainer, profile, machine).dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace snug::bench

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: snug-step-profile ASSIGNMENT [STEPS]\n";
    return 2;
  }
  const int steps = argc == 3 ? std::atoi(argv[2]) : snug::bench::kDefaultSteps;
  const absl::Status status = snug::bench::Run(argv[1], steps);
  if (!status.ok()) std::cerr << "snug-step-profile: " << status << std::endl;
  return status.ok() ? 0 : 1;
}

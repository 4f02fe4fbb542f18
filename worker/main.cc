// snug-worker ASSIGNMENT: runs one attempt, or answers prompts. Exit codes: 0 succeeded, 3 stopped
// on command, 4 failed (result.json has the error, or could itself not be written), 2 usage.
// snug-worker --measure-context [DEVICE]: prints what the process itself takes of the device
// (default: the CPU), and how it multiplies fastest there, as one line of JSON. snug-worker-cuda is
// the same for gpu:N.
#include <signal.h>

#include <atomic>
#include <cstring>
#include <iostream>

#include "worker/execute/cpu_isa.h"
#include "worker/execute/device.h"
#include "worker/execute/gemm.h"
#include "worker/link/assignment.h"
#include "worker/link/worker_link.h"
#include "worker/program/files/opened_files.h"
#include "worker/train/answerer.h"
#include "worker/train/measure_context.h"
#include "worker/train/run_attempt.h"

namespace snug {
namespace {

std::atomic<bool> stop_requested = false;  // Lock-free, so a signal handler may set it.

void OnTerminate(int /*signal*/) { stop_requested = true; }

// A success that nobody can read of is none: without result.json the attempt counts as lost, so
// that another is made.
int ExitCode(train::AttemptResult::Outcome outcome, bool result_written) {
  switch (outcome) {
    case train::AttemptResult::Outcome::kSucceeded:
      return result_written ? 0 : 4;
    case train::AttemptResult::Outcome::kStopped:
      return 3;
    case train::AttemptResult::Outcome::kFailed:
      break;
  }
  return 4;
}

// A device that cannot be opened is not the job's fault.
train::AttemptResult DeviceFailure(const absl::Status& status) {
  return {.failure_class = train::FailureClass::kInfrastructure,
          .reason = "DEVICE_UNAVAILABLE",
          .message = std::string(status.message())};
}

train::AttemptResult Attempt(const train::AttemptOptions& attempt, execute::Device& device,
                             link::WorkerLink& node) {
  if (attempt.answers.has_value()) return train::RunAnswers(attempt, device, stop_requested);
  return train::RunAttempt(attempt, device, node, stop_requested);
}

int Run(const std::string& assignment) {
  const auto attempt = link::ReadAssignment(assignment);
  if (!attempt.ok()) {
    std::cerr << "snug-worker: " << attempt.status() << std::endl;
    return 2;
  }
  program::KeepToOpened(&attempt->opened);
  if (const auto products = execute::ParseGemmChoice(attempt->products); products.ok()) {
    execute::UseGemmChoice(*products);  // Else the default: of an older or no measurement.
  }
  execute::UseTf32(attempt->training.tf32);
  const auto node = link::WorkerLink::Dial(*attempt);
  const auto device = execute::OpenDevice(attempt->device, attempt->threads);
  const train::AttemptResult result =
      device.ok() ? Attempt(*attempt, **device, *node) : DeviceFailure(device.status());
  if (!result.message.empty()) std::cerr << "snug-worker: " << result.message << std::endl;
  const absl::Status written = link::WriteResult(attempt->attempt_dir, result);
  if (!written.ok()) std::cerr << "snug-worker: " << written << std::endl;
  node->ReportResult(result);
  return ExitCode(result.outcome, written.ok());
}

int PrintFacts(const std::string& device) {
  const auto facts = train::DeviceFactsText(device);
  if (!facts.ok()) {
    std::cerr << "snug-worker: " << facts.status() << "\n";
    return 2;
  }
  std::cout << *facts << std::endl;
  return 0;
}

}  // namespace
}  // namespace snug

int main(int argc, char** argv) {
  signal(SIGTERM, snug::OnTerminate);
  // A hung-up daemon and a file at its limit are errors of the call that met them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  const bool measures = argc > 1 && std::strcmp(argv[1], "--measure-context") == 0;
  if (argc != 2 && !(measures && argc == 3)) {
    std::cerr << "usage: snug-worker ASSIGNMENT | --measure-context [DEVICE]\n";
    return 2;
  }
  if (const absl::Status isa = snug::execute::UseCpuIsaOfEnvironment(); !isa.ok()) {
    std::cerr << "snug-worker: " << isa << "\n";
    return 2;
  }
  if (measures) return snug::PrintFacts(argc == 3 ? argv[2] : "cpu:0");
  return snug::Run(argv[1]);
}

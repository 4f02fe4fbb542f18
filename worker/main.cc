// snug-worker ASSIGNMENT: runs one attempt. Exit codes: 0 succeeded, 3 stopped on command, 4 failed
// (result.json has the error, or could itself not be written), 2 usage. snug-worker
// --measure-context: prints what the process itself takes, and how it multiplies fastest, as one
// line of JSON.
#include <signal.h>

#include <atomic>
#include <cstring>
#include <iostream>

#include "worker/execute/cpu_isa.h"
#include "worker/execute/gemm.h"
#include "worker/link/assignment.h"
#include "worker/link/worker_link.h"
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

int Run(const std::string& assignment) {
  const auto attempt = link::ReadAssignment(assignment);
  if (!attempt.ok()) {
    std::cerr << "snug-worker: " << attempt.status() << std::endl;
    return 2;
  }
  execute::CpuDevice device(attempt->threads);
  if (const auto products = execute::ParseGemmChoice(attempt->products); products.ok()) {
    execute::UseGemmChoice(*products);  // Else the default: of an older or no measurement.
  }
  const auto node = link::WorkerLink::Dial(*attempt);
  const train::AttemptResult result = train::RunAttempt(*attempt, device, *node, stop_requested);
  if (!result.message.empty()) std::cerr << "snug-worker: " << result.message << std::endl;
  const absl::Status written = link::WriteResult(attempt->attempt_dir, result);
  if (!written.ok()) std::cerr << "snug-worker: " << written << std::endl;
  node->ReportResult(result);
  return ExitCode(result.outcome, written.ok());
}

}  // namespace
}  // namespace snug

int main(int argc, char** argv) {
  signal(SIGTERM, snug::OnTerminate);
  // A hung-up daemon and a file at its limit are errors of the call that met them.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  if (argc != 2) {
    std::cerr << "usage: snug-worker ASSIGNMENT | --measure-context\n";
    return 2;
  }
  if (const absl::Status isa = snug::execute::UseCpuIsaOfEnvironment(); !isa.ok()) {
    std::cerr << "snug-worker: " << isa << "\n";
    return 2;
  }
  if (std::strcmp(argv[1], "--measure-context") == 0) {
    std::cout << snug::train::NodeFactsText() << std::endl;
    return 0;
  }
  return snug::Run(argv[1]);
}

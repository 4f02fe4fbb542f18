// snugd: the scheduler daemon.
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "server/config.h"
#include "server/daemon.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "worker/program/files/opened_files.h"

namespace {

// Exit codes as sysexits.h names them: what a service manager can act upon.
int Fail(const absl::Status& status) {
  if (absl::IsOutOfRange(status)) return puts(std::string(status.message()).c_str()) < 0;
  fprintf(stderr, "snugd: %s\n", std::string(status.message()).c_str());
  if (absl::IsInvalidArgument(status)) return 64;  // EX_USAGE
  if (absl::IsDataLoss(status)) return 65;         // EX_DATAERR: the store is damaged
  return absl::IsUnavailable(status) ? 75 : 1;     // EX_TEMPFAIL: locked
}

}  // namespace

int main(int argc, char** argv) {
#ifdef NDEBUG
  // Debian's Abseil is one with checks: each lock would be entered into a graph of the whole
  // process, behind one lock, and the daemon aborted over an order of locks that might deadlock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  spdlog::set_default_logger(spdlog::stderr_color_mt("snugd"));
  auto config = snug::server::ConfigFromCommandLine(argc, argv);
  if (!config.ok()) return Fail(config.status());
  // What workers and snug-prepare have written; what users name is snug-inspect's to read.
  const std::string& state = config->state_dir();
  snug::program::ReadOnlyBelow({state + "/jobs", state + "/datasets", state + "/sampling"});
  auto daemon = snug::server::Daemon::Create(*config);
  if (!daemon.ok()) return Fail(daemon.status());
  puts((*daemon)->Banner().c_str());
  fflush(stdout);
  (*daemon)->WaitForShutdown();
  return 0;
}

#include "server/node/local_node.h"

#include <signal.h>
#include <sys/types.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/snug/status_macros.h"
#include "server/node/descriptors.h"
#include "server/node/link_server.h"
#include "server/node/process_memory.h"
#include "server/node/session.h"
#include "server/node/shared_weights.h"
#include "server/node/shim_watch.h"

namespace snug::server {
namespace {

constexpr int kKillRounds = 50;
constexpr absl::Duration kKillPause = absl::Milliseconds(100);

std::string LinkSocket(const LauncherSettings& settings) {
  return settings.state_dir + "/link.sock";
}

class LocalProcesses : public AttemptProcesses {
 public:
  LocalProcesses(const LauncherSettings& settings, std::unique_ptr<ShimWatch> watch)
      : settings_(settings), watch_(std::move(watch)) {}

  absl::StatusOr<int64_t> Start(const Device& device, const v1::Assignment& assignment) override {
    const DescriptorLoan loan;
    v1::Assignment here = assignment;
    here.set_link_socket(LinkSocket(settings_));
    ASSIGN_OR_RETURN(const std::string weights, SharedWeightsDir(settings_.state_dir));
    here.set_shared_weights_dir(weights);
    ASSIGN_OR_RETURN(const pid_t shim, LaunchAttempt(settings_, device, here));
    watch_->Follow(shim, /*just_started=*/true);
    return shim;
  }
  Liveness Look() override { return watch_->Look(); }
  absl::Status SignalShim(int signal) override {
    const DescriptorLoan loan;
    return watch_->Signal(signal);
  }
  absl::Status SignalWorker(int signal) override {
    const DescriptorLoan loan;
    return watch_->SignalOthers(signal);
  }
  int64_t PeakHostBytes(int64_t worker) override {
    return PeakResidentBytes(static_cast<pid_t>(worker));
  }

 private:
  const LauncherSettings& settings_;
  const std::unique_ptr<ShimWatch> watch_;
};

// The shim's number as the rows have it, or else as it stands in its lock; 0: the shim did not come
// that far.
absl::StatusOr<pid_t> ShimOf(const Node::EndedAttempt& ended, const std::string& attempt_dir) {
  if (ended.shim > 0) return static_cast<pid_t>(ended.shim);
  const DescriptorLoan loan;
  return ReadShimPid(attempt_dir);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerLink>> LocalNode::Listen(WorkerLink::Handlers handlers) {
  ASSIGN_OR_RETURN(boot_id_, server::BootId());
  LinkLimits limits;  // However many strangers there are, every worker has a place.
  limits.connections = limits.strangers + static_cast<size_t>(settings_.most_attempts);
  return LinkServer::Start(LinkSocket(settings_), std::move(handlers), limits);
}

std::unique_ptr<AttemptProcesses> LocalNode::Expect(const std::string& job, int epoch) {
  return std::make_unique<LocalProcesses>(
      settings_, std::make_unique<ShimWatch>(AttemptDir(settings_.state_dir, job, epoch)));
}

std::unique_ptr<AttemptProcesses> LocalNode::Adopt(const std::string& job, int epoch,
                                                   int64_t shim) {
  const DescriptorLoan loan;
  const std::string attempt_dir = AttemptDir(settings_.state_dir, job, epoch);
  return std::make_unique<LocalProcesses>(settings_,
                                          ShimWatch::Adopt(attempt_dir, static_cast<pid_t>(shim)));
}

absl::StatusOr<AttemptRemains> LocalNode::Collect(const EndedAttempt& ended) {
  const std::string attempt_dir =
      AttemptDir(settings_.state_dir, ended.identity.job, ended.identity.epoch);
  ReapShim(static_cast<pid_t>(ended.shim));
  RETURN_IF_ERROR(KillOrphans(ended, attempt_dir));
  const DescriptorLoan loan;
  return AttemptRemains{.exit = ReadExitRecord(attempt_dir, ended.identity),
                        .result = ReadResult(attempt_dir)};
}

// A shim that was killed leaves its worker behind. Nothing may run in the attempt's name when the
// next one starts, so an error says that nobody knows: "nobody runs" is never taken from one.
absl::Status LocalNode::KillOrphans(const EndedAttempt& ended,
                                    const std::string& attempt_dir) const {
  ASSIGN_OR_RETURN(const std::string boot, server::BootId());
  // The machine has been started anew. Rows of an earlier version say nothing where the id could
  // not be read: such an attempt is looked for as one of this boot.
  if (!ended.boot_id.empty() && ended.boot_id != boot) return absl::OkStatus();
  ASSIGN_OR_RETURN(const pid_t shim, ShimOf(ended, attempt_dir));
  absl::StatusOr<int> signalled = 0;
  for (int round = 0; round < kKillRounds; ++round) {
    const DescriptorLoan loan;
    signalled = SignalSession(shim, attempt_dir, SIGKILL);
    if (!signalled.ok() && !absl::IsUnavailable(signalled.status())) return signalled.status();
    if (signalled.ok() && *signalled == 0) return absl::OkStatus();
    absl::SleepFor(kKillPause);
  }
  RETURN_IF_ERROR(signalled.status());
  return absl::DeadlineExceededError(
      absl::StrCat("processes of ", attempt_dir, " do not end, though they were killed"));
}

GpuUses LocalNode::LookAtGpus(const std::vector<Device>& devices) {
  const GpuReadings readings = gpus_->Look();
  GpuUses uses;
  for (const Device& device : devices)
    if (device.is_gpu()) uses.emplace(device.name, UseOf(device, readings, settings_.state_dir));
  return uses;
}

void LocalNode::SweepSharedWeights() { server::SweepSharedWeights(settings_.state_dir); }

}  // namespace snug::server

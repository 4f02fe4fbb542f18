// The machine of the daemon: attempts are processes beside it, known by their folders' locks.
#ifndef SERVER_NODE_LOCAL_NODE_H_
#define SERVER_NODE_LOCAL_NODE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/node/launcher.h"
#include "server/node/node.h"

namespace snug::server {

class LocalNode : public Node {
 public:
  // `gpus`: of this machine; null where there is none to look at.
  explicit LocalNode(LauncherSettings settings, GpuWatch* gpus = nullptr)
      : settings_(std::move(settings)), gpus_(gpus) {}

  absl::StatusOr<std::unique_ptr<WorkerLink>> Listen(WorkerLink::Handlers handlers) override;
  std::string BootId() const override { return boot_id_; }
  std::unique_ptr<AttemptProcesses> Expect(const std::string& job, int epoch) override;
  std::unique_ptr<AttemptProcesses> Adopt(const std::string& job, int epoch, int64_t shim) override;
  absl::StatusOr<AttemptRemains> Collect(const EndedAttempt& ended) override;
  bool WatchesGpus() const override { return gpus_ != nullptr; }
  GpuUses LookAtGpus(const std::vector<Device>& devices) override;
  void SweepSharedWeights() override;

 private:
  absl::Status KillOrphans(const EndedAttempt& ended, const std::string& attempt_dir) const;

  const LauncherSettings settings_;
  GpuWatch* const gpus_;
  std::string boot_id_;  // Known once Listen has returned OK.
};

}  // namespace snug::server

#endif  // SERVER_NODE_LOCAL_NODE_H_

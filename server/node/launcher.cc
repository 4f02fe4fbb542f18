#include "server/node/launcher.h"

#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"
#include "server/node/process.h"

namespace snug::server {
namespace {

absl::Status MakeFolder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::InternalError(absl::StrCat("cannot make ", dir, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

const std::string& WorkerOf(const LauncherSettings& settings, const Device& device) {
  return device.is_gpu() ? settings.worker_cuda : settings.worker;
}

std::vector<std::string> WorkerEnvironment(const Device& device) {
  if (!device.is_gpu()) return {};
  return {"CUDA_VISIBLE_DEVICES=" + device.gpu.uuid, "CUDA_DEVICE_ORDER=PCI_BUS_ID",
          "CUDA_MODULE_LOADING=LAZY",
          "CUDA_MPS_PIPE_DIRECTORY=/dev/null"};  // Nobody listens there: CUDA goes on without.
}

absl::StatusOr<pid_t> LaunchAttempt(const LauncherSettings& settings, const Device& device,
                                    const v1::Assignment& assignment) {
  const std::string& dir = assignment.attempt_dir();
  RETURN_IF_ERROR(MakeFolder(dir));
  RETURN_IF_ERROR(MakeFolder(assignment.checkpoints_dir()));
  RETURN_IF_ERROR(WriteFile(dir + "/assignment.binpb", assignment.SerializeAsString()));
  ASSIGN_OR_RETURN(const int lock, TakeAttemptLock(dir));
  absl::Cleanup forget_lock = [lock] { close(lock); };  // The shim has it; ours would outlive it.
  return Spawn({.argv = {settings.shim, dir, WorkerOf(settings, device)},
                .environment = WorkerEnvironment(device),
                .passed_fd = lock});
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

void ReapShim(pid_t shim) {
  if (shim > 0) waitpid(shim, nullptr, WNOHANG);
}

}  // namespace snug::server

#include "server/node/launcher.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "proto/snug/status_macros.h"
#include "server/failpoint.h"
#include "server/node/attempt_files.h"
#include "server/node/descriptors.h"
#include "server/node/process.h"
#include "server/node/remote_spawn.h"

namespace snug::server {
namespace {

constexpr const char* kBootIdFile = "/proc/sys/kernel/random/boot_id";
constexpr int64_t kMaxBootIdBytes = 256;  // The kernel writes 37.

// It does not change while this process lives.
struct KnownBoot {
  absl::Mutex mutex;
  std::string id ABSL_GUARDED_BY(mutex);  // Empty: it has not been read yet.
};

absl::StatusOr<std::string> ReadBootId() {
  const DescriptorLoan loan;
  const absl::StatusOr<std::string> text = ReadSmallFile(kBootIdFile, kMaxBootIdBytes);
  if (!text.ok())
    return absl::UnavailableError(
        absl::StrCat("the id of this boot is not known: ", text.status().message()));
  std::string id(absl::StripAsciiWhitespace(*text));
  if (id.empty())
    return absl::UnavailableError(
        absl::StrCat("the id of this boot is not known: ", kBootIdFile, " is empty"));
  return id;
}

absl::Status MakeFolder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", dir));
  return absl::OkStatus();
}

// The store has never given this epoch out, so whatever lies there is of no attempt that it knows.
absl::Status MoveStaleAside(const std::string& dir) {
  struct stat status {};
  if (lstat(dir.c_str(), &status) != 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int lock, TakeAttemptLock(dir));
  const absl::Cleanup unlock = [lock] { close(lock); };
  const std::string aside = absl::StrCat(dir, ".stale-", absl::ToUnixNanos(absl::Now()));
  FAILPOINT("launch.stale");
  if (rename(dir.c_str(), aside.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot move ", dir, " aside"));
}

// What the worker comes to under no plan that it may be moved to: one that takes more leaks, and
// ends alone. It never gets more of the host's memory than it began with. 0: no limit, where the
// daemon starts workers in a control group that is not handed over to it, where a driver's memory
// is counted as well, and where nobody says how much it may take.
int64_t MostBytes(const LauncherSettings& settings, const Device& device,
                  const v1::Assignment& assignment) {
  constexpr int64_t kUncounted = int64_t{1} << 30;  // The kernel's own, and files as they are read.
  const bool no_group = settings.socket.empty() && settings.cgroup.empty();
  if (no_group || device.is_gpu() || assignment.most_bytes() == 0) return 0;
  return assignment.most_bytes() + assignment.plan().host_bytes() + kUncounted;
}

std::vector<std::string> ShimEnvironment(const LauncherSettings& settings, const Device& device,
                                         const v1::Assignment& assignment) {
  std::vector<std::string> environment = WorkerEnvironment(device);
  environment.push_back("SNUG_ATTEMPT=" + assignment.attempt_dir());
  environment.push_back("SNUG_INSTANCE=" + settings.instance);
  environment.push_back("SNUG_NONCE=" + assignment.nonce());
  if (const int64_t bytes = MostBytes(settings, device, assignment); bytes > 0)
    environment.push_back(absl::StrCat("SNUG_MEMORY_MAX=", bytes));
  if (!settings.cgroup.empty()) environment.push_back("SNUG_CGROUP=" + settings.cgroup);
  return environment;
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
  RETURN_IF_ERROR(MoveStaleAside(dir));
  RETURN_IF_ERROR(MakeFolder(dir));
  RETURN_IF_ERROR(MakeFolder(assignment.checkpoints_dir()));
  FAILPOINT("launch.folders");
  RETURN_IF_ERROR(WriteFile(dir + "/assignment.binpb", assignment.SerializeAsString()));
  ASSIGN_OR_RETURN(const int lock, TakeAttemptLock(dir));
  FAILPOINT("launch.locked");
  absl::Cleanup forget_lock = [lock] { close(lock); };  // The shim has it; ours would outlive it.
  const SpawnOptions shim{.argv = {settings.shim, dir, WorkerOf(settings, device)},
                          .environment = ShimEnvironment(settings, device, assignment),
                          .passed_fds = {lock}};
  return settings.socket.empty() ? Spawn(shim) : SpawnAt(settings.socket, shim);
}

absl::StatusOr<std::string> BootId() {
  static auto* const known = new KnownBoot();
  absl::MutexLock lock(&known->mutex);
  if (known->id.empty()) {
    ASSIGN_OR_RETURN(known->id, ReadBootId());
  }
  return known->id;
}

void ReapShim(pid_t shim) {
  if (shim > 0) waitpid(shim, nullptr, WNOHANG);
}

}  // namespace snug::server

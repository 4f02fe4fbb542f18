#include "server/inspect/sandbox.h"

#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/shim/confine.h"

namespace snug::server {
namespace {

constexpr uid_t kNobody = 65534;  // nobody, nogroup

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // Its runtime maps terabytes and makes calls of its own.
#else
constexpr bool kSanitized = false;
#endif

// Reading and answering on open descriptors, memory, ending. Neither open nor socket nor exec.
// (fstat of glibc is newfstatat: that nobody may ask after a path's size is not worth another way.)
const std::vector<int>& AllowedCalls() {
  static const auto& calls = *new std::vector<int>{
      SYS_read,          SYS_pread64,         SYS_write,
      SYS_sendto,        SYS_close,           SYS_fstat,
      SYS_newfstatat,    SYS_lseek,           SYS_fcntl,
      SYS_mmap,          SYS_munmap,          SYS_mremap,
      SYS_brk,           SYS_madvise,         SYS_futex,
      SYS_clock_gettime, SYS_getpid,          SYS_gettid,
      SYS_tgkill,        SYS_rt_sigprocmask,  SYS_rt_sigreturn,
      SYS_rt_sigaction,  SYS_getrandom,       SYS_exit,
      SYS_exit_group,    SYS_restart_syscall, SYS_sched_yield,
      SYS_writev,        SYS_readv,           SYS_mprotect,
  };
  return calls;
}

absl::Status Limit(int which, rlim_t most) {
  rlimit limit = {most, most};
  rlimit current = {};
  getrlimit(static_cast<__rlimit_resource_t>(which), &current);
  if (current.rlim_max != RLIM_INFINITY && current.rlim_max < most)
    limit = {current.rlim_max, current.rlim_max};
  if (setrlimit(static_cast<__rlimit_resource_t>(which), &limit) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot set limit ", which));
}

// Root alone has rights to give up. Groups first: only root may change them.
absl::Status DropRights() {
  if (geteuid() != 0) return absl::OkStatus();
  if (unshare(CLONE_NEWNET) != 0) return absl::ErrnoToStatus(errno, "cannot leave the network");
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0)
    return absl::ErrnoToStatus(errno, "cannot become nobody");
  return absl::OkStatus();
}

}  // namespace

absl::Status EnterSandbox(const SandboxLimits& limits) {
  RETURN_IF_ERROR(DropRights());
  RETURN_IF_ERROR(Limit(RLIMIT_CPU, static_cast<rlim_t>(limits.cpu_seconds)));
  RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, 0));
  if (!kSanitized) RETURN_IF_ERROR(Limit(RLIMIT_AS, static_cast<rlim_t>(limits.memory_bytes)));
  if (prctl(PR_SET_DUMPABLE, 0) != 0) return absl::ErrnoToStatus(errno, "cannot hide its memory");
  if (const int error = shim::GiveUpPrivileges(); error != 0)
    return absl::ErrnoToStatus(error, "cannot give up rights");
  if (kSanitized) return absl::OkStatus();
  const int error = shim::RefuseAllCallsBut(AllowedCalls());
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "cannot filter system calls");
}

}  // namespace snug::server

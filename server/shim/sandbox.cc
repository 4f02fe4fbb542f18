#include "server/shim/sandbox.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <iterator>
#include <vector>

namespace snug::shim {
namespace {

#if defined(__x86_64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_X86_64;
constexpr unsigned kForeignCalls = 0x40000000U;  // x32's numbers: the same calls once more.
#elif defined(__aarch64__)
constexpr unsigned kArchitecture = AUDIT_ARCH_AARCH64;
constexpr unsigned kForeignCalls = ~0U;  // None.
#else
#error "which architecture's system calls are these?"
#endif

constexpr long kRefused[] = {
    // Other processes.
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp,
    // Mounts, namespaces, roots.
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare, SYS_setns, SYS_open_tree,
    SYS_move_mount, SYS_fsopen, SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr,
    SYS_open_by_handle_at,
    // Keys.
    SYS_add_key, SYS_request_key, SYS_keyctl,
    // The kernel and the machine.
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
    SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_acct, SYS_settimeofday,
    SYS_clock_settime, SYS_clock_adjtime, SYS_sethostname, SYS_setdomainname, SYS_quotactl,
    SYS_syslog};

constexpr int kSockets[] = {AF_UNIX, AF_NETLINK};

constexpr sock_filter kRefuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

constexpr sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

// Goes on behind the next statement unless what was loaded is this value.
constexpr sock_filter NextIf(unsigned value) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
}

std::vector<sock_filter> Filter() {
  std::vector<sock_filter> filter = {Load(offsetof(seccomp_data, arch)),
                                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
                                     kRefuse,
                                     Load(offsetof(seccomp_data, nr)),
                                     BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kForeignCalls, 0, 1),
                                     kRefuse};
  for (long call : kRefused) {
    filter.push_back(NextIf(static_cast<unsigned>(call)));
    filter.push_back(kRefuse);
  }
  const auto rest = static_cast<unsigned char>(2 + 2 * std::size(kSockets));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, rest));
  filter.push_back(Load(offsetof(seccomp_data, args[0])));
  for (int family : kSockets) {
    filter.push_back(NextIf(static_cast<unsigned>(family)));
    filter.push_back(kAllow);
  }
  filter.push_back(kRefuse);
  filter.push_back(kAllow);
  return filter;
}

}  // namespace

int EnterSandbox() {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  int error = setrlimit(RLIMIT_CORE, &none) == 0 ? 0 : errno;
  // The kernel takes a filter from an unprivileged process only after this.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return errno;
  std::vector<sock_filter> filter = Filter();
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()),
                              .filter = filter.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace snug::shim

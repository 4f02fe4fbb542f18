#include "server/shim/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
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
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_pidfd_getfd,
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

constexpr int kLocalSockets[] = {AF_UNIX, AF_NETLINK};

// Of clone, which starts threads and processes as well.
constexpr unsigned kNamespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                                 CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// Of headers that are older than the kernel.
constexpr uint64_t kLandlockTruncate = uint64_t{1} << 14;

constexpr uint64_t kReading =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr uint64_t kOfFiles = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE |
                              LANDLOCK_ACCESS_FS_WRITE_FILE | kLandlockTruncate;
constexpr uint64_t kOfFirstVersion = (uint64_t{1} << 13) - 1;

constexpr sock_filter kRefuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

constexpr sock_filter Load(size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}

// Goes on behind the next statement unless what was loaded is this value.
constexpr sock_filter NextIf(unsigned value) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
}

constexpr sock_filter kNoSuchCall = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);

// Refuses the calls of other architectures and loads the number of one of ours.
std::vector<sock_filter> Begin() {
  return {Load(offsetof(seccomp_data, arch)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
          kRefuse,
          Load(offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kForeignCalls, 0, 1),
          kRefuse};
}

// Goes on behind `rest` unless the call that was loaded is this one.
void AddRuleOf(long call, const std::vector<sock_filter>& rest, std::vector<sock_filter>& filter) {
  const auto size = static_cast<unsigned char>(rest.size());
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, size));
  filter.insert(filter.end(), rest.begin(), rest.end());
}

std::vector<sock_filter> RuleOfSockets(Sockets sockets) {
  if (sockets == Sockets::kNone) return {kRefuse};
  std::vector<sock_filter> rule = {Load(offsetof(seccomp_data, args[0]))};
  for (int family : kLocalSockets) {
    rule.push_back(NextIf(static_cast<unsigned>(family)));
    rule.push_back(kAllow);
  }
  rule.push_back(kRefuse);
  return rule;
}

int Install(std::vector<sock_filter> filter) {
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()),
                              .filter = filter.data()};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0 ? 0 : errno;
}

// What this kernel can refuse of files; 0: nothing, errno says why.
uint64_t RightsOfFiles() {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return 0;
  uint64_t rights = kOfFirstVersion;
  if (version >= 2) rights |= LANDLOCK_ACCESS_FS_REFER;
  if (version >= 3) rights |= kLandlockTruncate;
  return rights;
}

int Allow(int rules, uint64_t rights, const std::string& path) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  struct stat about {};
  int error = fstat(fd, &about) == 0 ? 0 : errno;
  if (error == 0 && !S_ISDIR(about.st_mode)) rights &= kOfFiles;
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = rights;
  rule.parent_fd = fd;
  if (error == 0 &&
      syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0)
    error = errno;
  close(fd);
  return error;
}

}  // namespace

int GiveUpPrivileges() {
  const rlimit none = {.rlim_cur = 0, .rlim_max = 0};
  const int error = setrlimit(RLIMIT_CORE, &none) == 0 ? 0 : errno;
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 ? error : errno;
}

int DropCapabilities() {
  // Those that a program of root's is given when it starts. Who may not drop them has no right to
  // any, or gains none for want of new privileges. The kernel says EINVAL behind its last.
  for (unsigned long capability = 0;
       prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0 &&
       (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0 || errno == EPERM);)
    ++capability;
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);  // They end with the others, too.
  if (prctl(PR_SET_KEEPCAPS, 0, 0, 0, 0) != 0) return errno;
  __user_cap_header_struct header = {};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
  return syscall(SYS_capset, &header, none) == 0 ? 0 : errno;
}

int RefuseCalls(Sockets sockets) {
  std::vector<sock_filter> filter = Begin();
  for (long call : kRefused) AddRuleOf(call, {kRefuse}, filter);
  // Its flags are where no filter can look. Who is told that there is none takes clone.
  AddRuleOf(SYS_clone3, {kNoSuchCall}, filter);
  AddRuleOf(SYS_clone,
            {Load(offsetof(seccomp_data, args[0])),
             BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kNamespaces, 0, 1), kRefuse, kAllow},
            filter);
  AddRuleOf(SYS_socket, RuleOfSockets(sockets), filter);
  filter.push_back(kAllow);
  return Install(std::move(filter));
}

int RefuseAllCallsBut(const std::vector<int>& calls) {
  std::vector<sock_filter> filter = Begin();
  for (int call : calls) AddRuleOf(call, {kAllow}, filter);
  filter.push_back(kRefuse);
  return Install(std::move(filter));
}

int RefuseFilesBut(const Files& files) {
  const uint64_t rights = RightsOfFiles();
  if (rights == 0) return errno;
  landlock_ruleset_attr all = {};
  all.handled_access_fs = rights;
  const auto rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0));
  if (rules < 0) return errno;
  int error = 0;
  for (const std::string& path : files.read)
    if (error == 0) error = Allow(rules, kReading, path);
  for (const std::string& path : files.write)
    if (error == 0) error = Allow(rules, rights, path);
  if (error == 0 && syscall(SYS_landlock_restrict_self, rules, 0) != 0) error = errno;
  close(rules);
  return error;
}

}  // namespace snug::shim

// The kernel's limits on a worker, where this process has a control group (v2) to itself: one that
// the service manager made for it and handed over (Delegate= of snug-worker@.service).
//
// Two groups are made in it: shim, which this process moves into, and worker, which has the limits.
// The kernel limits only what has no processes beside its groups. A process that is started between
// Enter and Leave is in worker from its first instruction on, with all that it starts.
#ifndef SERVER_SHIM_CGROUP_H_
#define SERVER_SHIM_CGROUP_H_

#include <string>

namespace snug::shim {

class Cgroup {
 public:
  // `mount`: where control groups are, /sys/fs/cgroup. `self`: /proc/self/cgroup's text. Returns 0,
  // or why there are no limits: ENOTSUP where the machine has no version 2 of groups, or not its
  // controllers for memory and processes, EBUSY where others are in the group as well, else what
  // the kernel says. Without limits Enter and Leave do nothing.
  int Open(const std::string& mount, const std::string& self, long long memory_bytes,
           long long processes);

  // 0, or errno.
  int Enter() const;
  int Leave() const;

  // How often the kernel ended the worker for its memory.
  long long MemoryKills() const;

 private:
  std::string folder_;  // Empty: no limits.
};

}  // namespace snug::shim

#endif  // SERVER_SHIM_CGROUP_H_

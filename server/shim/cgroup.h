// The kernel's limits on a worker, by a control group (v2) of its own. Two kinds of machine grant
// one:
//
//   - This process has a group to itself, which the service manager made for it and handed over
//     (Delegate= of snug-worker@.service). Two groups are made in it: shim, which this process
//     moves into, and worker, which has the limits: the kernel limits only what has no processes
//     beside its groups.
//   - The daemon has one to itself and has prepared it (server/node/delegated_group.h). The
//   worker's
//     is made there and removed after its end; this process stays where it is.
//
// A process that is started between Enter and Leave is in the worker's group from its first
// instruction on, with all that it starts.
#ifndef SERVER_SHIM_CGROUP_H_
#define SERVER_SHIM_CGROUP_H_

#include <string>

namespace snug::shim {

struct CgroupLimits {
  long long memory_bytes = 0;  // None of it on a swap device.
  long long processes = 0;     // And threads.
};

class Cgroup {
 public:
  // `mount`: where control groups are, /sys/fs/cgroup. `self`: /proc/self/cgroup's text. Each gives
  // 0, or why there are no limits: ENOTSUP where the machine has no version 2 of groups, or not its
  // controllers for memory and processes, EBUSY where others are in the group as well, else what
  // the kernel says. Without limits Enter and Leave do nothing.
  int OpenOwn(const std::string& mount, const std::string& self, const CgroupLimits& limits);
  // `parent`: the daemon's folder for the groups of workers; `name`: of this one.
  int OpenBelow(const std::string& parent, const std::string& name, const std::string& mount,
                const std::string& self, const CgroupLimits& limits);

  // 0, or errno.
  int Enter() const;
  int Leave() const;

  // The worker's folder; empty: no limits.
  const std::string& worker() const { return worker_; }
  // How many of its processes the kernel ended for its memory.
  long long MemoryKills() const;
  // Once nothing runs in it.
  void Remove();

 private:
  std::string home_;    // The folder of this process's own group.
  std::string worker_;  // Empty: no limits.
};

}  // namespace snug::shim

#endif  // SERVER_SHIM_CGROUP_H_

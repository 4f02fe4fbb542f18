// What a process, and whatever it starts, may no longer ask of the kernel. A process does this to
// itself before it reads a stranger's byte, or before it becomes the program that will: children
// inherit it, and nobody can take it off. Calls that are refused fail with
// EPERM, files with EACCES.
//
// Every program of the service that touches what users bring gives rights up by these functions:
// snug-shim for the worker, snug-confine for snug-prepare, snug-inspect for itself.
//
// Each gives 0, or the errno of the first part that the kernel does not grant; what could be given
// up by then stays given up.
#ifndef SERVER_SHIM_CONFINE_H_
#define SERVER_SHIM_CONFINE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace snug::shim {

// No setuid program gives it other rights, and no core file holds weights or data.
int GiveUpPrivileges();

// Of root there is its user id left: files that are others' it may open as others may. No program
// that is started gets anything back. Behind whatever needs a capability, and after
// GiveUpPrivileges.
int DropCapabilities();

enum class Sockets : uint8_t {
  kLocal,  // Unix ones, and netlink, by which libraries count processors.
  kNone,   // Not one, but for pairs of its own.
};

// No looking into other processes, no mounts and namespaces, no keys, no loading into the kernel,
// no sockets but these. After GiveUpPrivileges.
int RefuseCalls(Sockets sockets);

// No system call but these. After GiveUpPrivileges.
int RefuseAllCallsBut(const std::vector<int>& calls);

struct Files {
  std::vector<std::string> read;   // Folders or files: reading and executing all below.
  std::vector<std::string> write;  // Everything.
};

// No file but these, wherever a link leads: what counts is what is opened, not the path to it. What
// is not there is left out. After GiveUpPrivileges. ENOSYS or EOPNOTSUPP: this kernel has no such
// rule (Landlock, from 5.13 on).
int RefuseFilesBut(const Files& files);

}  // namespace snug::shim

#endif  // SERVER_SHIM_CONFINE_H_

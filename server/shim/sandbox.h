// What a worker, and whatever it starts, may not ask of the kernel. Applied by the shim to itself
// before it starts the worker, for children inherit it and nobody can take it off.
//
//   - no new privileges: no setuid program gives it other rights
//   - no core files: they would hold weights and data
//   - a filter of system calls: no looking into other processes, no mounts and namespaces, no keys,
//     no loading into the kernel, and no socket but unix ones (and netlink, by which libraries
//     count processors): what is refused fails with EPERM
//
// It deliberately keeps no files from it: the worker reads what its job names with the rights of
// the user that it runs as.
#ifndef SERVER_SHIM_SANDBOX_H_
#define SERVER_SHIM_SANDBOX_H_

namespace snug::shim {

// 0, or the errno of the first part that the kernel does not grant. The rest is in force then.
int EnterSandbox();

}  // namespace snug::shim

#endif  // SERVER_SHIM_SANDBOX_H_

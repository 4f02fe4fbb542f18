// How snugd asks snug-launch for a process, over a SOCK_SEQPACKET connection of its own:
//   request  one message with one descriptor (SCM_RIGHTS): the number of arguments in decimals, the
//            arguments, the environment, each ended by a zero byte
//   reply    one message: the process's id, a pid_t. None: it was not started.
#ifndef SERVER_SHIM_LAUNCH_WIRE_H_
#define SERVER_SHIM_LAUNCH_WIRE_H_

#include <cstddef>

namespace snug::shim {

inline constexpr size_t kMaxLaunchBytes = 128 << 10;  // A socket takes 208 KiB at once by default.
inline constexpr int kLaunchFd = 3;                   // The descriptor's number in the process.

}  // namespace snug::shim

#endif  // SERVER_SHIM_LAUNCH_WIRE_H_

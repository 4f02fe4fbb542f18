// A message over a Unix socket with open files beside its bytes (SCM_RIGHTS of unix(7)): between
// snugd, snug-inspect, snug-launch and snug-prepare.
#ifndef SERVER_SHIM_DESCRIPTOR_MESSAGE_H_
#define SERVER_SHIM_DESCRIPTOR_MESSAGE_H_

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace snug::shim {

inline constexpr size_t kMaxDescriptorsAtOnce = 200;  // In one message; the kernel takes 253.

// Bytes sent, or -1 with errno: as sendmsg(2) has it, begun again after a signal. `fds` stay the
// caller's; if there are none, only the bytes are sent.
ssize_t SendWithDescriptors(int socket, const void* bytes, size_t size, const std::vector<int>& fds,
                            int flags = 0);

// Bytes received, 0 at the end, or -1 with errno: as recvmsg(2) has it, begun again after a signal.
// `fds` become the caller's, closed by exec. EMSGSIZE: the message is longer; EMFILE: not all of
// its descriptors could be taken, because they are too many or this process has no room for them.
// Then the message is gone, and nothing of it is left open.
ssize_t ReceiveWithDescriptors(int socket, void* bytes, size_t size, std::vector<int>& fds);

}  // namespace snug::shim

#endif  // SERVER_SHIM_DESCRIPTOR_MESSAGE_H_

// A file descriptor handed to another process over a socket (unix(7), SCM_RIGHTS).
#ifndef TESTS_GPU_PASS_FD_H_
#define TESTS_GPU_PASS_FD_H_

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace snug::gpu {

// One byte, and room for one descriptor beside it.
struct FdMessage {
  char byte = 0;
  iovec part = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};

  FdMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
};

inline void SendFd(int socket, int fd) {
  FdMessage message;
  cmsghdr* beside = CMSG_FIRSTHDR(&message.header);
  beside->cmsg_level = SOL_SOCKET;
  beside->cmsg_type = SCM_RIGHTS;
  beside->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(beside), &fd, sizeof(fd));
  if (sendmsg(socket, &message.header, 0) != 1) throw std::runtime_error("sendmsg");
}

inline int ReceiveFd(int socket) {
  FdMessage message;
  if (recvmsg(socket, &message.header, 0) != 1) throw std::runtime_error("recvmsg");
  const cmsghdr* beside = CMSG_FIRSTHDR(&message.header);
  if (beside == nullptr || beside->cmsg_type != SCM_RIGHTS)
    throw std::runtime_error("no descriptor came");
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(beside), sizeof(fd));
  return fd;
}

// False: the other end closed before all bytes came.
inline bool ReadWhole(int socket, void* to, size_t bytes) {
  for (size_t had = 0; had < bytes;) {
    const ssize_t more = read(socket, static_cast<char*>(to) + had, bytes - had);
    if (more <= 0) return false;
    had += static_cast<size_t>(more);
  }
  return true;
}

}  // namespace snug::gpu

#endif  // TESTS_GPU_PASS_FD_H_

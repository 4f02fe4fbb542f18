#include "server/shim/descriptor_message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace snug::shim {
namespace {

// Of the bytes and the descriptors of one message.
struct Parcel {
  Parcel(void* bytes, size_t size) : part{bytes, size} {
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
  }

  iovec part;
  msghdr message = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptorsAtOnce)] = {};
};

void Take(msghdr& message, std::vector<int>& fds) {
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const size_t before = fds.size();
    fds.resize(before + count);
    std::memcpy(fds.data() + before, CMSG_DATA(header), sizeof(int) * count);
  }
}

}  // namespace

ssize_t SendWithDescriptors(int socket, const void* bytes, size_t size, const std::vector<int>& fds,
                            int flags) {
  if (fds.size() > kMaxDescriptorsAtOnce) {
    errno = EINVAL;
    return -1;
  }
  Parcel parcel(const_cast<void*>(bytes), size);  // sendmsg only reads it.
  if (!fds.empty()) {
    parcel.message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* header = CMSG_FIRSTHDR(&parcel.message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
  }
  ssize_t sent;
  while ((sent = sendmsg(socket, &parcel.message, MSG_NOSIGNAL | flags)) < 0 && errno == EINTR) {
  }
  return sent;
}

ssize_t ReceiveWithDescriptors(int socket, void* bytes, size_t size, std::vector<int>& fds) {
  fds.clear();
  Parcel parcel(bytes, size);
  parcel.message.msg_controllen = sizeof parcel.control;
  ssize_t got;
  while ((got = recvmsg(socket, &parcel.message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  if (got < 0) return got;
  Take(parcel.message, fds);
  const int flags = parcel.message.msg_flags;
  if ((flags & (MSG_TRUNC | MSG_CTRUNC)) == 0) return got;
  for (const int fd : fds) close(fd);
  fds.clear();
  errno = (flags & MSG_TRUNC) != 0 ? EMSGSIZE : EMFILE;
  return -1;
}

}  // namespace snug::shim

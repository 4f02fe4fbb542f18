#include "server/node/connection_caps.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace snug::server {

uint64_t SocketOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

std::optional<std::string> UserOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  const auto bytes = [](const void* from, size_t count) {
    return std::string(static_cast<const char*>(from), count);
  };
  if (address.ss_family == AF_INET)
    return bytes(&reinterpret_cast<const sockaddr_in*>(&address)->sin_addr, sizeof(in_addr));
  if (address.ss_family == AF_INET6) {
    const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_addr;
    return IN6_IS_ADDR_V4MAPPED(&host) ? bytes(&host.s6_addr[12], 4) : bytes(&host, 8);
  }
  ucred peer{};
  size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return bytes(&peer.uid, sizeof peer.uid);
}

// The number may be another's at any moment: so a second one is looked at.
void ShutDown(int fd, uint64_t socket) {
  const int mine = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (mine < 0) return;
  if (SocketOf(mine) == socket) shutdown(mine, SHUT_RDWR);
  close(mine);
}

bool ConnectionCaps::Admit(int fd) {
  const std::optional<std::string> user = UserOf(fd);
  if (!user) return false;
  const auto full = [&] {
    const auto of_user = std::count_if(known_.begin(), known_.end(),
                                       [&](const Known& one) { return one.user == *user; });
    return known_.size() >= limits_.in_all || static_cast<size_t>(of_user) >= limits_.of_a_user;
  };
  if (known_.size() >= forget_at_ || full()) ForgetGone();
  if (full()) return false;
  known_.push_back({.fd = fd, .socket = SocketOf(fd), .user = *user});
  return true;
}

void ConnectionCaps::ForgetGone() {
  std::erase_if(known_, [](const Known& one) { return SocketOf(one.fd) != one.socket; });
  forget_at_ = std::max<size_t>(64, 2 * known_.size());
}

}  // namespace snug::server

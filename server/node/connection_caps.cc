#include "server/node/connection_caps.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>

namespace snug::server {
namespace {

ino_t SocketOf(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

bool ConnectionCaps::Admit(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  const auto full = [&] {
    const auto of_user = std::count_if(known_.begin(), known_.end(),
                                       [&](const Known& one) { return one.user == peer.uid; });
    return known_.size() >= limits_.in_all || static_cast<size_t>(of_user) >= limits_.of_a_user;
  };
  if (known_.size() >= forget_at_ || full()) ForgetGone();
  if (full()) return false;
  known_.push_back({.fd = fd, .socket = SocketOf(fd), .user = peer.uid});
  return true;
}

void ConnectionCaps::ForgetGone() {
  std::erase_if(known_, [](const Known& one) { return SocketOf(one.fd) != one.socket; });
  forget_at_ = std::max<size_t>(64, 2 * known_.size());
}

}  // namespace snug::server

#include "server/grpc/peers.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "server/node/connection_caps.h"

namespace snug::server {
namespace {

constexpr int kFirst = 4096;     // The daemon's own files and pipes stay below.
constexpr int kNumbers = 65536;  // That many connections lie between two of one number.

// -1: it is no connection of ours.
int NumberOf(absl::string_view peer) {
  int number = -1;
  return absl::ConsumePrefix(&peer, "fd:") && absl::SimpleAtoi(peer, &number) ? number : -1;
}

}  // namespace

Peers::Peers() {
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  const int limit = static_cast<int>(std::min<rlim_t>(files.rlim_cur, kFirst + kNumbers));
  first_ = std::min(kFirst, limit / 2);
  end_ = limit;
  next_ = first_;
}

int Peers::Adopt(int fd) {
  Principal principal;
  const bool known = PeerOf(fd, &principal);
  absl::MutexLock lock(&mutex_);
  if (next_ >= end_) next_ = first_;
  int number = known ? fcntl(fd, F_DUPFD_CLOEXEC, next_) : -1;
  if (known && number < 0) number = fcntl(fd, F_DUPFD_CLOEXEC, first_);
  close(fd);
  if (number < 0) return -1;
  next_ = number + 1;
  peers_[number] = {.principal = std::move(principal), .socket = SocketOf(number)};
  return number;
}

std::optional<Principal> Peers::Find(absl::string_view peer) const {
  absl::MutexLock lock(&mutex_);
  const auto found = peers_.find(NumberOf(peer));
  if (found == peers_.end()) return std::nullopt;
  return found->second.principal;
}

void Peers::Close(absl::string_view peer) const {
  const int number = NumberOf(peer);
  absl::MutexLock lock(&mutex_);
  if (const auto found = peers_.find(number); found != peers_.end())
    ShutDown(number, found->second.socket);
}

}  // namespace snug::server

#include "server/grpc/strangers.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/job/log.h"
#include "server/node/connection_caps.h"

namespace snug::server {
namespace {

// Bytes of the address, one that stands for IPv4's as that one's, and the port.
std::string PlaceOf(const sockaddr_storage& address) {
  const auto place = [](const void* host, size_t bytes, in_port_t port) {
    return absl::StrCat(absl::string_view(static_cast<const char*>(host), bytes), ":", ntohs(port));
  };
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return place(&four.sin_addr, sizeof four.sin_addr, four.sin_port);
  }
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
  const uint8_t* host = six.sin6_addr.s6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return place(host + 12, 4, six.sin6_port);
  return place(host, sizeof six.sin6_addr, six.sin6_port);
}

// Empty: it is none of the network's.
std::string PlaceOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return address.ss_family == AF_INET || address.ss_family == AF_INET6 ? PlaceOf(address) : "";
}

// As gRPC spells it. Empty: it is none of the network's.
std::string PlaceOf(absl::string_view peer) {
  const bool six = absl::StartsWith(peer, "ipv6:");
  const size_t colon = peer.rfind(':');
  int port = 0;
  if ((!six && !absl::StartsWith(peer, "ipv4:")) ||
      !absl::SimpleAtoi(peer.substr(colon + 1), &port))
    return "";
  constexpr size_t kScheme = 5;
  const std::string host = absl::StrReplaceAll(peer.substr(kScheme, colon - kScheme),
                                               {{"%5B", ""}, {"%5D", ""}, {"[", ""}, {"]", ""}});
  sockaddr_storage address{};
  address.ss_family = six ? AF_INET6 : AF_INET;
  auto& of_six = reinterpret_cast<sockaddr_in6&>(address);
  auto& of_four = reinterpret_cast<sockaddr_in&>(address);
  (six ? of_six.sin6_port : of_four.sin_port) = htons(static_cast<uint16_t>(port));
  void* to = six ? static_cast<void*>(&of_six.sin6_addr) : &of_four.sin_addr;
  // Behind % is the interface of an address of this link.
  const std::string bare = host.substr(0, host.find('%'));
  return inet_pton(address.ss_family, bare.c_str(), to) == 1 ? PlaceOf(address) : "";
}

// Those that wait in the kernel included; nothing where it does not say.
std::optional<int64_t> BytesReceived(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  if (size < offsetof(tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received)
    return std::nullopt;
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

}  // namespace

bool Strangers::Admit(int fd, absl::Duration now) {
  const std::optional<std::string> address = UserOf(fd);
  const std::string place = PlaceOf(fd);
  if (!address || place.empty()) return false;
  absl::MutexLock lock(&mutex_);
  std::erase_if(refused_until_, [&](const auto& refused) { return refused.second <= now; });
  const auto lets_in = [&](const auto& each) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Peer& peer = each.second;
    return peer.known && peer.address == *address && SocketOf(peer.fd) == each.first;
  };
  if (refused_until_.contains(*address) && !absl::c_any_of(peers_, lets_in)) return false;
  const auto [at, is_new] = peers_.try_emplace(SocketOf(fd));
  strangers_ += is_new || at->second.known ? 1 : 0;
  at->second = {.fd = fd, .address = *address, .place = place};
  return true;
}

void Strangers::Close(absl::string_view peer) {
  const std::string place = PlaceOf(peer);
  absl::MutexLock lock(&mutex_);
  for (const auto& [socket, peer] : peers_)
    if (peer.place == place) ShutDown(peer.fd, socket);
}

void Strangers::Acquaint(absl::string_view peer) {
  const std::string place = PlaceOf(peer);
  absl::MutexLock lock(&mutex_);
  for (auto& [socket, peer] : peers_)
    if (peer.place == place && !std::exchange(peer.known, true)) --strangers_;
}

void Strangers::CountCall(absl::string_view peer, absl::Duration now) {
  const std::string place = PlaceOf(peer);
  if (place.empty()) return;
  absl::MutexLock lock(&mutex_);
  const auto is_stranger = [&](const auto& each) {
    return each.second.place == place && !each.second.known;
  };
  if (!absl::c_any_of(peers_, is_stranger) || calls_.Take(place, now)) return;
  for (auto& [socket, stranger] : peers_) {
    if (stranger.place != place || stranger.known || std::exchange(stranger.closed, true)) continue;
    Refuse(socket, stranger, now);
    spdlog::warn("a connection is closed: more than {} calls came over it, and nobody was let in",
                 limits_.calls.burst);
  }
}

void Strangers::Refuse(uint64_t socket, const Peer& peer, absl::Duration now) {
  ShutDown(peer.fd, socket);
  refused_until_[peer.address] = now + limits_.refusal;
}

bool Strangers::Measure(uint64_t socket, Peer& peer, int64_t allowed) {
  if (SocketOf(peer.fd) != socket) return false;
  if (peer.known) return true;
  const std::optional<int64_t> received = BytesReceived(peer.fd);
  if (!received) return false;
  peer.level = std::max<int64_t>(0, peer.level - allowed) + *received - peer.received;
  peer.received = *received;
  return true;
}

bool Strangers::Judge(uint64_t socket, Peer& peer, int64_t burst, absl::Duration now) {
  if (peer.known) return true;
  const bool was_over = std::exchange(peer.over, peer.level > burst);
  if (!was_over || !peer.over) return true;
  Refuse(socket, peer, now);
  spdlog::warn("a connection is closed: {} bytes came over it, and nobody who was let in",
               peer.received);
  return false;
}

template <typename Stays>
void Strangers::Keep(const Stays& stays) {
  for (auto each = peers_.begin(); each != peers_.end();) {
    const bool kept = stays(each->first, each->second);
    if (!kept && !each->second.known) --strangers_;
    each = kept ? std::next(each) : peers_.erase(each);
  }
}

void Strangers::Review(absl::Duration now) {
  absl::MutexLock lock(&mutex_);
  const auto allowed = static_cast<int64_t>(absl::ToDoubleSeconds(now - reviewed_) *
                                            static_cast<double>(limits_.bytes_per_second));
  reviewed_ = now;
  int64_t of_all = 0;
  Keep([&](uint64_t socket, Peer& peer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const bool there = Measure(socket, peer, allowed);
    if (there && !peer.known) of_all += peer.level;
    return there;
  });
  const int64_t burst = of_all > limits_.bytes_of_all ? limits_.burst_of_many : limits_.burst_bytes;
  Keep([&](uint64_t socket, Peer& peer)
           ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Judge(socket, peer, burst, now); });
}

bool Strangers::any() const {
  absl::MutexLock lock(&mutex_);
  return strangers_ > 0;
}

}  // namespace snug::server

#include "server/node/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int kBacklog = 1024;

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<Addresses> Resolve(const std::string& address) {
  ASSIGN_OR_RETURN(const HostAndPort parts, SplitAddress(address));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &found);
  if (error != 0)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", address, "\" is no address of this machine: ", gai_strerror(error)));
  return Addresses(found, freeaddrinfo);
}

}  // namespace

absl::StatusOr<HostAndPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  HostAndPort parts;
  if (colon != std::string::npos)
    parts = {.host = address.substr(0, colon), .port = address.substr(colon + 1)};
  if (absl::StartsWith(parts.host, "[") && absl::EndsWith(parts.host, "]"))
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  else if (parts.host.find(':') != std::string::npos)
    parts.host.clear();
  if (parts.host.empty() || parts.port.empty())
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is no HOST:PORT: 127.0.0.1:7070, [::1]:7070, 0.0.0.0:7070"));
  return parts;
}

absl::StatusOr<int> ListenTcp(const std::string& address) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(address));
  const int fd = socket(addresses->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", address));
  absl::Cleanup close_on_error = [fd] { close(fd); };
  const int on = 1;  // What an earlier daemon's connections have left does not stand in the way.
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd, addresses->ai_addr, addresses->ai_addrlen) != 0 || listen(fd, kBacklog) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen on ", address));
  std::move(close_on_error).Cancel();
  return fd;
}

std::string TcpAddressOf(int socket) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  char host[NI_MAXHOST] = {}, port[NI_MAXSERV] = {};
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "";
  const bool v6 = bound.ss_family == AF_INET6;
  return absl::StrCat(v6 ? "[" : "", host, v6 ? "]:" : ":", port);
}

void SetUpConnection(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace snug::server

// Listening TCP sockets of the daemon.
#ifndef SERVER_NODE_TCP_SOCKET_H_
#define SERVER_NODE_TCP_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"

namespace snug::server {

struct HostAndPort {
  std::string host;
  std::string port;
};

// HOST:PORT, or [::1]:PORT.
absl::StatusOr<HostAndPort> SplitAddress(const std::string& address);

// A listening socket on HOST:PORT, or [::1]:PORT, of the first address that the host has. Port 0: a
// free one.
absl::StatusOr<int> ListenTcp(const std::string& address);

// HOST:PORT as the kernel has it; empty: it is no bound TCP socket.
std::string TcpAddressOf(int socket);

// What is set on a connection that was accepted: small answers go at once, and a peer whose machine
// has gone is noticed.
void SetUpConnection(int socket);

}  // namespace snug::server

#endif  // SERVER_NODE_TCP_SOCKET_H_

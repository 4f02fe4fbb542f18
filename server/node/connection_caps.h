// How many connections there may be at once, in all and of one user or address, so that no one can
// keep all others out.
#ifndef SERVER_NODE_CONNECTION_CAPS_H_
#define SERVER_NODE_CONNECTION_CAPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace snug::server {

// No two sockets of a machine have the same number; 0: the descriptor is no socket.
uint64_t SocketOf(int fd);
// Ends the connection. Its owner may close it at any moment: another socket is left alone.
void ShutDown(int fd, uint64_t socket);
// Bytes that tell users, or addresses, apart; nothing where the kernel does not say who it is.
std::optional<std::string> UserOf(int fd);

struct ConnectionLimits {
  size_t in_all = 2000;
  size_t of_a_user = 1500;  // By SO_PEERCRED; of TCP, by address: of IPv6, by its first 64 bits.
};

// Is told of connections that come, not of those that go (their owner closes them when it likes):
// whether one is still there is asked of its descriptor. For one thread.
class ConnectionCaps {
 public:
  explicit ConnectionCaps(ConnectionLimits limits = {}) : limits_(limits) {}

  // Whether there is room for this one, which counts from now on.
  bool Admit(int fd);

 private:
  struct Known {
    int fd = -1;
    uint64_t socket = 0;
    std::string user;
  };

  void ForgetGone();

  const ConnectionLimits limits_;
  std::vector<Known> known_;
  size_t forget_at_ = 64;  // Looking at all of them is paid for by the ones that came since.
};

}  // namespace snug::server

#endif  // SERVER_NODE_CONNECTION_CAPS_H_

#include "tests/fault/crash/launcher.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "tests/fault/crash/child.h"

namespace snug::crash {

Launcher::Launcher(std::string program, std::string socket, std::string log)
    : program_(std::move(program)), socket_(std::move(socket)), log_(std::move(log)) {
  unlink(socket_.c_str());
  listening_ = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_.c_str(), sizeof address.sun_path - 1);
  if (bind(listening_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listening_, SOMAXCONN) != 0)
    perror("the launcher's socket");
  stop_ = eventfd(0, EFD_CLOEXEC);
  thread_ = std::thread([this] { Loop(); });
}

Launcher::~Launcher() {
  const uint64_t one = 1;
  if (write(stop_, &one, sizeof one) < 0) perror("the launcher's end");
  thread_.join();
  close(listening_);
  close(stop_);
}

// What it has started goes on as shims, which outlive it as they outlive their daemon.
void Launcher::Loop() {
  std::list<Child> started;
  pollfd set[] = {{listening_, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (poll(set, 2, 100) >= 0 && set[1].revents == 0) {
    started.remove_if([](Child& child) { return child.EndsWithin(absl::ZeroDuration()); });
    if (set[0].revents == 0) continue;
    const int connection = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    started.emplace_back(std::vector<std::string>{program_}, std::vector<std::string>(), log_,
                         connection);
    close(connection);
  }
  for (Child& child : started) child.Abandon();
}

}  // namespace snug::crash

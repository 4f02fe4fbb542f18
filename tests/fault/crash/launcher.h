// What a service manager does for a daemon that does not start workers itself: each connection to a
// socket gets a snug-launch.
#ifndef TESTS_FAULT_CRASH_LAUNCHER_H_
#define TESTS_FAULT_CRASH_LAUNCHER_H_

#include <string>
#include <thread>

namespace snug::crash {

class Launcher {
 public:
  Launcher(std::string program, std::string socket, std::string log);
  ~Launcher();

  const std::string& socket() const { return socket_; }

 private:
  void Loop();

  const std::string program_, socket_, log_;
  int listening_ = -1;
  int stop_ = -1;  // An eventfd.
  std::thread thread_;
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_LAUNCHER_H_

// A process that the harness has started.
#ifndef TESTS_FAULT_CRASH_CHILD_H_
#define TESTS_FAULT_CRASH_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace snug::crash {

class Child {
 public:
  Child() = default;
  // In a session of its own. What it prints is added to `log`; `environment` is over this process's
  // own, as "NAME=value". `input`: its standard input; -1: /dev/null.
  Child(std::vector<std::string> argv, std::vector<std::string> environment, const std::string& log,
        int input = -1);
  ~Child() { Kill(); }
  Child(Child&& other) noexcept;
  Child& operator=(Child&& other) noexcept;

  // Whether it has ended by then.
  bool EndsWithin(absl::Duration duration);
  void Signal(int number) const;
  void Kill();     // And waits for it.
  void Abandon();  // It goes on by itself.

  // Of one that has ended: by this signal, or 0; with this code, or -1.
  int signal() const;
  int exit_code() const;

 private:
  bool Reap();

  pid_t pid_ = -1;
  int pidfd_ = -1;
  bool ended_ = true;
  int status_ = 0;
};

}  // namespace snug::crash

#endif  // TESTS_FAULT_CRASH_CHILD_H_

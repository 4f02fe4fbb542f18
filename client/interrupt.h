// What is said when the user ends a command by Ctrl-C that only looks at something.
#ifndef CLIENT_INTERRUPT_H_
#define CLIENT_INTERRUPT_H_

#include <csignal>
#include <string>

namespace snug::client {

// While it lives, SIGINT writes the text to standard error and then ends the program as it would
// have. One at a time.
class InterruptNote {
 public:
  explicit InterruptNote(const std::string& text);
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  struct sigaction before_;
};

}  // namespace snug::client

#endif  // CLIENT_INTERRUPT_H_

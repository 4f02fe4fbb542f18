// The terminal as a screen: no echo, no line by line, its former content back at the end, whatever
// the end is.
#ifndef CLIENT_SCREEN_H_
#define CLIENT_SCREEN_H_

#include <termios.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/command_line.h"
#include "client/top_screen.h"

namespace snug::client {

// Of standard output; 80 x 24 where it does not say.
ScreenSize TerminalSize(const Terminal& terminal);

class Screen {
 public:
  // Before the first thread: signals to end (INT, TERM, HUP) and that the size has changed are
  // taken here, and threads that are there already would take them instead.
  explicit Screen(Terminal& terminal);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  enum class Event { kTime, kResized, kLeave };  // kLeave: q, Ctrl-C, or a signal to end.
  Event Wait(absl::Duration time);
  void Draw(const std::vector<std::string>& lines);

 private:
  Event Signalled();

  Terminal& terminal_;
  termios before_{};     // Declared before what fills it.
  const bool keyboard_;  // Standard input is a terminal.
  sigset_t mask_before_;
  int signals_ = -1;
};

}  // namespace snug::client

#endif  // CLIENT_SCREEN_H_
